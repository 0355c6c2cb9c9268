// Package mcpserver offers the sessions of a server to another agent as tools of the
// Model Context Protocol, over one connection.
//
// It owns the tools, their limits and permissions; only the command line imports it. It is a
// client of the HTTP API like any other and stores nothing durable. Invariant (I-33): it gives
// no session more trust than its maximum, whatever its API key allows; it answers approvals only
// if it was started with that permission; and it carries out a call once, however often the call
// is sent with its key.
package mcpserver
