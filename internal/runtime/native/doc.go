// Package native is the runtime "native": turns run on the agent loop in the server; the tools
// act in the session's box.
//
// Package app imports it; it imports the runtime contract, the agent loop, conversation, folder, hook and the
// vocabulary. Invariant: the messages for the model are computed from the session's log and the agent's folder
// alone, so after a crash the model receives what it would have received without one.
package native
