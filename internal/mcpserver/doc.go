// Package mcpserver offers the sessions of a server to another agent as tools of the
// Model Context Protocol, over one connection.
//
// It owns the tools, their bounds and what they may not do; only the command line
// imports it. It is a client of the HTTP API like any other and keeps no truth.
// Invariant (I-33): it gives no session more trust than its maximum, whatever the key behind
// it may, answers no question to a person unless it was told to, and does what a call
// asks for once, however often the call is sent with its key.
package mcpserver
