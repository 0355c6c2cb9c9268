// Package native is the runtime "native": turns run on the agent loop in the
// server, tools act in the session's box.
//
// The wiring imports it; it imports the runtime contract, agent and the
// vocabulary. Invariant: the conversation is folded from the session's log and
// from nothing else, so what the model is told after a crash is what it would
// have been told without one.
package native
