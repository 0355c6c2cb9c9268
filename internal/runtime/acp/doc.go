// Package acp is the runtimes "acp:NAME": they run turns on any agent that speaks the Agent
// Client Protocol over its stdio, one long-lived process for each session, in the session's box, or
// on the host if it is trusted.
//
// The wiring imports it; it imports the runtime contract, the box, package retell and the
// vocabulary, and is the only package that imports the protocol's SDK. A turn attaches to the
// process at the offset up to which the log holds its output, reads until the answer to its own
// prompt, and detaches. Invariants: a request is recorded with its id before it is sent, and is
// sent again only if boxd never received it (ADR 0028); no tool is allowed before its intent is
// in the log; the agent's output is hostile input.
package acp
