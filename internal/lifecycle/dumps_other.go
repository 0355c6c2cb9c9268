//go:build unix && !linux

package lifecycle

import "syscall"

// NoDumps sets the hard limit on the size of core files to 0, so that the memory of
// this process, which holds keys and tokens, is in none.
func NoDumps() error { return syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}) }
