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

// keepFrom reserves disk space for bytes of a file, beginning at the offset from. The
// length of the file stays as it is. The only error is a full disk.
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

// startSync starts to write bytes of a file to the disk, beginning at the offset from, and
// does not wait for the end.
func startSync(f *os.File, from, bytes int64) {
	_ = syscall.SyncFileRange(int(f.Fd()), from, bytes, syncFileRangeWrite)
}

// diskSpace returns the space of a file's disk: free for this process, and in total;
// total is 0 if it is unknown.
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
