// Package jsonrpc speaks JSON-RPC 2.0 in lines. Message is the codec, for callers that transport
// and record the lines themselves; Peer is one side of a connection, with requests in both
// directions.
//
// The servers on stdin and stdout and the runtimes of agents that speak JSON-RPC import it; it
// imports the standard library only. Invariants: whatever the other side sends is bounded (the
// line, its values and their nesting, the open requests); each of its requests gets exactly one
// answer while the connection lasts; and when Peer.Run returns, no work of a request runs.
package jsonrpc
