// Package transcript handles the files in which the Claude Code CLI stores a conversation: it
// checks whether a file still holds what the session's log recorded of it, and writes it again
// from the log.
//
// The claude runtime imports it; it imports the vocabulary. It does no I/O. An agent can write
// the files, so they are hostile input with limits on everything. Invariant (I-30): a file that
// passes holds every recorded entry unchanged, and the conversation that ends at its last entry
// contains the recorded end; any other file fails with a reason.
package transcript
