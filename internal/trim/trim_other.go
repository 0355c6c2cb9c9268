//go:build !linux

// Package trim returns memory to the system that a process needed only to start.
package trim

import "runtime/debug"

// Memory returns free heap to the system.
func Memory() { debug.FreeOSMemory() }
