// Package jail confines boxd and the tools from inside the box: it builds the root directory of the box from the mounts
// in the configuration, and owns the confined threads that fork all tool processes and run all file operations.
//
// cmd/boxd and the driver local import it. It imports boxd, its packages paths and modes, the wire protocol, the
// vocabulary and golang.org/x/sys. Invariant (I-16): no tool process exists before Enter returned. Each is forked by a
// thread that has no_new_privs, a seccomp filter and no capability that a tool could use, and is in a Landlock domain
// if the kernel has Landlock. boxd's other threads are not in these domains, so tools cannot signal or trace them
// (HZ-1, HZ-9). Processes that have the same path rules of an agent are forked by one thread, which has these rules. In
// a shared box each session has a place: a mount namespace and threads of its own. There boxd's own threads keep the
// permitted capabilities to make places; they are effective only while a thread makes or enters a place.
package jail
