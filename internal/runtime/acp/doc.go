// Package acp is the runtimes "acp:NAME": turns run on any agent that speaks the
// Agent Client Protocol over its stdio, one long-lived process for a session, in the
// session's box.
//
// The wiring imports it; it imports the runtime contract, the box, the retelling of
// histories and the vocabulary, and it alone the protocol's SDK. A turn attaches to
// the process at the offset that the log accounts for, runs to the answer of its own
// prompt, and lets go. Invariants: a request is recorded, with its id, before it is
// sent, and is sent again only when boxd never took it (ADR 0028); no tool is
// allowed before its intent is in the log; what the agent says is hostile input.
package acp
