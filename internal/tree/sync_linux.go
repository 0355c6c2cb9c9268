package tree

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncFS flushes the whole file system of a directory to disk, so that all files written to it are durable.
func syncFS(root *os.Root) error {
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
