// Package acpserver offers the sessions of a server to an editor as an agent of
// the Agent Client Protocol, version 1, over one connection.
//
// It owns the protocol towards the editor and the mapping from the session's log to updates;
// only the command line imports it. It is a client of the HTTP API like any other and stores
// nothing durable. Invariant (I-32): the updates that an editor received of a session come from
// a prefix of the log, each event once and in order, so that loading the session again shows the
// same.
package acpserver
