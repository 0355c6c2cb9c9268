//go:build unix

package tree

import (
	"io/fs"
	"syscall"
)

// openFlags prevent an open from blocking on a FIFO and from making a terminal the controlling one.
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
