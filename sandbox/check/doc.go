// Package check refuses, before anything runs, commands, paths and domains that
// sandbox settings do not allow, and says why.
//
// It is an early refusal with an explanation, not a security boundary: the boundary is the box. It refuses programs
// that it cannot prove harmless, and lets pass what is only text: quoted strings, comments, quoted heredocs, arguments.
//
// It owns the sandbox settings (with their JSON field names), their narrowing for child agents, and the analysis of
// bash programs. The policy, packages of the server and the command line import it; it imports the root package,
// package usage and a shell parser. Invariant: a Checker does not change after New and is safe for concurrent use; it
// opens no files, and looks up only links and directory entries, through the FS that it was given.
package check
