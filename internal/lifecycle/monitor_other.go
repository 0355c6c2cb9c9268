//go:build !linux

package lifecycle

// CalmMonitor does nothing on this system.
func CalmMonitor() {}
