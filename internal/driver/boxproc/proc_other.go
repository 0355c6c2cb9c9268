//go:build !linux

package boxproc

// Alive always returns false: boxes exist only on Linux.
func (d *Dir) Alive(Record) bool { return false }
