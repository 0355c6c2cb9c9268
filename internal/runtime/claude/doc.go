// Package claude is the runtime "claude": it runs turns on the real Claude Code CLI, one long-lived
// process for each session, in the session's box, or on the host if the session is trusted.
//
// Package app imports it; it imports the runtime contract, resident, cli, transcript, the box and the vocabulary. A turn
// attaches to the process at the offset up to which the log holds its output, reads until the
// result that covers the turn's messages, and detaches. Invariant: everything this package has
// in memory may be lost at any moment; the log and the session's AgentState hold what the next
// server needs to continue, and no tool of the CLI starts before its intent is in the log.
package claude
