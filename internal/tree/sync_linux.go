package tree

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncFS flushes the file system of a directory, so that everything written there is durable.
func syncFS(root *os.Root) error {
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
