//go:build !unix

package tree

import "os"

// removeAll removes an entry of a directory and everything below it.
func removeAll(dir *os.Root, name string) error { return dir.RemoveAll(name) }
