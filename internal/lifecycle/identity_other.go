//go:build !linux

package lifecycle

import (
	"os"
	"syscall"
)

// inodeOf describes the inode of an open file.
func inodeOf(f *os.File) (inode, error) {
	info, err := f.Stat()
	if err != nil {
		return inode{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}, syscall.ENOTSUP
	}
	return inode{Number: st.Ino}, nil
}
