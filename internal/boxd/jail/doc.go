// Package jail closes the box around boxd from the inside: it builds the root directory from the
// mounts it is given, and owns the confined threads on which every tool process is forked and
// every file operation runs.
//
// Only cmd/boxd imports it. It imports boxd's contract, the wire protocol and
// golang.org/x/sys. Invariant (I-16): no tool process exists before Enter returned, and
// every one is forked by a thread that holds no capability a tool could use,
// no_new_privs, a Landlock domain and the seccomp program. boxd's own threads stay
// outside of those domains, so tools cannot signal or trace them (HZ-1, HZ-9).
// Processes with path rules of their own are forked by a thread kept for those rules. In a shared
// box each session has a place, with a mount namespace and threads of its own; boxd's own threads
// keep the capabilities to make places as permitted, in effect only for that moment.
package jail
