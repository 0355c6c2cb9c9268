// Package modes tries whether a thread can make a file dangerous to other users: set-uid, set-gid, or with capabilities.
//
// The program in the box (internal/boxd/jail) imports it. Invariant: a call counts as refused only if the kernel or a filter
// said so, and what is tried leaves nothing behind.
package modes
