// Package transcript knows the files in which the Claude Code CLI keeps a
// conversation: whether one still holds what the session's log recorded of it, and
// how to write it anew from the log.
//
// The claude runtime imports it; it imports the vocabulary. It does no I/O. The files
// lie where an agent can write them: they are hostile input, bounded in every way.
// Invariant (I-30): a file that passes holds every entry that was recorded, unchanged, and
// the CLI that goes on from its end goes through the recorded end; anything else
// fails with a reason.
package transcript
