//go:build unix

package tree

import (
	"io/fs"
	"syscall"
)

// openFlags prevent that the open of a FIFO blocks, and that an opened terminal becomes the controlling terminal.
const openFlags = syscall.O_NONBLOCK | syscall.O_NOCTTY

// inode identifies a file during one copy.
type inode struct{ dev, ino uint64 }

// inodeOf returns a file's inode; several reports that the file has more than one name (hard links).
func inodeOf(info fs.FileInfo) (id inode, several bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}, false
	}
	return inode{uint64(st.Dev), st.Ino}, st.Nlink > 1
}
