//go:build !linux

package tree

import "os"

// syncFS does what other systems offer: it makes the directory's own entries durable. Not
// all of them can.
func syncFS(root *os.Root) error {
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	_ = f.Sync()
	return nil
}
