package db

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// keepSize is FALLOC_FL_KEEP_SIZE: it reserves blocks beyond the end of a file and
// keeps the file's length.
const keepSize = 1

// syncFileRangeWrite is SYNC_FILE_RANGE_WRITE: it starts to write dirty pages to the disk.
const syncFileRangeWrite = 2

// keepFrom reserves disk blocks for a range of f: bytes long, from the offset from. It keeps the
// file's length. It returns an error only for a full disk or quota; a file system that cannot
// reserve is not an error.
func keepFrom(f *os.File, from, bytes int64) error {
	for {
		err := syscall.Fallocate(int(f.Fd()), keepSize, from, bytes)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
			return err
		}
		return nil
	}
}

// startSync starts to write a range of f to the disk, bytes long from the offset from, and does
// not wait until it is written.
func startSync(f *os.File, from, bytes int64) {
	_ = syscall.SyncFileRange(int(f.Fd()), from, bytes, syncFileRangeWrite)
}

// diskSpace returns the bytes of the disk that holds path: those free for this process, and all.
// If they are unknown free is -1 and total is 0.
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
