// Package acp implements the runtimes "acp:NAME", which run turns on any agent that speaks the Agent
// Client Protocol over its stdio. Each session has one long-lived process of its agent, in the session's
// box, or on the host if the session is trusted.
//
// Package app imports it; it imports the runtime contract, package resident, the wire types of the
// box, jsonrpc, retell, conversation, policy, the protocol's SDK and the vocabulary. A turn attaches
// to the process at the offset up to which the log holds its output, reads until the answer to its
// own prompt, and detaches. Invariants: a request is recorded with its id before it is sent, and is
// sent again only if boxd never received it (ADR 0028); no tool is allowed before its intent is
// in the log; the agent's output is hostile input.
package acp
