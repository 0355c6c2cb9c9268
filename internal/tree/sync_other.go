//go:build !linux

package tree

import "os"

// syncFS makes the directory's own entries durable, if the system can: systems other than Linux
// offer no more.
func syncFS(root *os.Root) error {
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	_ = f.Sync()
	return nil
}
