//go:build !linux

package tree

import "os"

// syncFS flushes the directory itself to disk, if the system can do that. Unlike on Linux, it does not flush files below
// the directory.
func syncFS(root *os.Root) error {
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	_ = f.Sync()
	return nil
}
