// Package acpserver offers the sessions of a server to an editor as an agent of
// the Agent Client Protocol, version 1, over one connection.
//
// It owns the protocol towards the editor and the mapping between the session's log
// and its updates; only the command line imports it. It is a client of the HTTP API
// like any other: it keeps no truth. Invariant (I-32): what an editor was told of a session
// is a prefix of the log, each event once and in order, so that a session that is
// loaded again shows the same.
package acpserver
