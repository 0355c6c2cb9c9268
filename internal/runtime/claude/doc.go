// Package claude is the runtime "claude": turns run on the real Claude Code CLI, one
// long-lived process for a session, in the session's box.
//
// The wiring imports it; it imports the runtime contract, the box and the
// vocabulary. A turn attaches to the process at the offset that the log accounts
// for, runs to the result that covers the turn's messages, and lets go.
// Invariant: what this package keeps in memory may be lost at any moment; the log
// and the session's AgentState hold what the next server needs to go on, and no
// tool of the CLI starts before its intent is in the log.
package claude
