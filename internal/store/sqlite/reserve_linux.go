package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// keepSize is FALLOC_FL_KEEP_SIZE: blocks beyond the end of a file, which stays as
// long as it is.
const keepSize = 1

// growTo gives a file its blocks ahead, as zeros: a commit that lets a file grow
// waits for the file system's journal as well. A file system that cannot do it lets
// the file grow as it is written.
func growTo(f *os.File, bytes int64) error {
	st, err := f.Stat()
	if err != nil || st.Size() >= bytes {
		return err
	}
	return allocate(f, 0, st.Size(), bytes-st.Size())
}

// keepFrom reserves blocks for a file behind from.
func keepFrom(f *os.File, from, bytes int64) error { return allocate(f, keepSize, from, bytes) }

// allocate fails only where there is no space.
func allocate(f *os.File, mode uint32, from, bytes int64) error {
	for {
		err := syscall.Fallocate(int(f.Fd()), mode, from, bytes)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
			return err
		}
		return nil
	}
}

// diskSpace is what the disk of a file has left for this process and in all; 0 in all
// when it cannot be said.
func diskSpace(path string) (free, total int64) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(path), &st); err != nil {
		return -1, 0
	}
	free = int64(st.Bavail)
	if os.Geteuid() == 0 {
		free = int64(st.Bfree)
	}
	return free * st.Bsize, int64(st.Blocks) * st.Bsize
}
