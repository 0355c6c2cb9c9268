//go:build unix

package tree

import (
	"io/fs"
	"syscall"
)

// openFlags keep an open from waiting for a writer or becoming the terminal's owner.
const openFlags = syscall.O_NONBLOCK | syscall.O_NOCTTY

// inode identifies a file among those of one copy.
type inode struct{ dev, ino uint64 }

// inodeOf is a file's inode; several says that it has more names than one.
func inodeOf(info fs.FileInfo) (id inode, several bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}, false
	}
	return inode{uint64(st.Dev), st.Ino}, st.Nlink > 1
}
