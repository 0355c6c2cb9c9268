//go:build unix && !linux

package lifecycle

import "syscall"

// NoDumps sets the hard limit on the size of core files to 0, so that they never hold
// the memory of this process, which contains keys and tokens.
func NoDumps() error { return syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}) }
