//go:build !linux

// Package trim gives back memory that a process needed to start and needs no more.
package trim

import "runtime/debug"

// Memory gives back free heap.
func Memory() { debug.FreeOSMemory() }
