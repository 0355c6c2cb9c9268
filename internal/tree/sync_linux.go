package tree

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncFS makes all that was written to a directory's file system durable.
func syncFS(root *os.Root) error {
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
