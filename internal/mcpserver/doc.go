// Package mcpserver offers the sessions of a server to another agent as tools of the
// Model Context Protocol, over one connection.
//
// It owns the tools, their limits and permissions; only the command line imports it. It is an
// ordinary client of the HTTP API and stores nothing durable. Invariant (I-33): it creates no session
// with more trust than the connection's maximum, and does not send messages to, read files of or change
// a session with more, whatever its API key allows; it answers approvals only if it was started with
// that permission; and it makes a session or sends a message once, however often the call is repeated
// with the same idempotency key. The maximum does not limit what can be listed or read in logs:
// list_sessions and read_events also return trusted sessions and their events, if the API key may read them.
package mcpserver
