//go:build !linux

// Package trim gives memory that a process needed only to start back to the system.
package trim

import "runtime/debug"

// Memory collects garbage, and gives the free heap back to the system.
func Memory() { debug.FreeOSMemory() }
