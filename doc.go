// Package holdfast is the vocabulary of Holdfast: identifiers, sessions, turns,
// events, agents and errors. Its types are also the wire types of the HTTP API.
//
// It owns names and rules that hold everywhere (what an id looks like, which
// status may follow which, which Kind maps to which HTTP status). Nearly every package
// imports it; it imports the standard library only, starts no goroutine and
// does no I/O. Invariant: a value of an identifier type was accepted by that
// type's parser or made by its constructor.
package holdfast
