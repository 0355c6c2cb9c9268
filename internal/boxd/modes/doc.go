// Package modes tries whether a thread can make a file dangerous to other users: set-uid, set-gid, or with capabilities.
//
// Package jail, which confines the threads of boxd, imports it. Invariant: a system call counts as refused only if it
// returned EPERM or ENOSYS, and the trials change no file.
package modes
