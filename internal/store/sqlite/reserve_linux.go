package sqlite

import (
	"os"
	"syscall"
)

// reserve gives the write-ahead log its blocks ahead, before SQLite opens it: a
// commit that lets a file grow waits for the file system's journal as well. What
// follows the last frame is not read, so zeros may. Without room for it, or on a
// file system that cannot, the log grows as it is written.
func reserve(wal string, bytes int64) {
	f, err := os.OpenFile(wal, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return // SQLite says what is wrong
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() >= bytes {
		return
	}
	if syscall.Fallocate(int(f.Fd()), 0, st.Size(), bytes-st.Size()) != nil {
		_ = f.Truncate(st.Size())
	}
}
