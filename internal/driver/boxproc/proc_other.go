//go:build !linux

package boxproc

// Alive reports that no process of a record runs: boxes exist only on Linux.
func (d *Dir) Alive(Record) bool { return false }
