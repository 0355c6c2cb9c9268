package db

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-run/holdfast/internal/durable"
)

// The mark is a file next to a database. markOpen in it says that a server has the database
// open, markClosing that the server has begun to close it. Only after markClosing may the
// write-ahead log be missing at the next start.
var markOpen, markClosing = []byte("open\n"), []byte("shut\n")

func markOf(path string) string { return path + "-open" }

// LostLog returns a description of the loss if the last server did not close the database at
// path and its write-ahead log is gone, otherwise the empty string.
func LostLog(path string) string {
	mark, err := os.ReadFile(markOf(path))
	if err != nil || !bytes.Equal(mark, markOpen) || HasLog(path) {
		return ""
	}
	return path + "-wal is missing after a server that was killed: the newest events may be gone, " +
		"unless another program opened the database meanwhile and moved them into it"
}

// HasLog reports whether the database at path has a write-ahead log file.
func HasLog(path string) bool {
	_, err := os.Lstat(path + "-wal")
	return !errors.Is(err, fs.ErrNotExist)
}

// setMark writes the mark of an open database. It must run only once the write-ahead log exists.
func setMark(path string) error { return writeMark(path, markOpen, os.O_CREATE) }

// shutMark changes an existing mark to markClosing, in place, which needs no disk space. It has
// to run before SQLite removes the log. If the database has no mark it does nothing.
func shutMark(path string) error {
	if err := writeMark(path, markClosing, 0); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeMark removes the mark of a database that was closed, if the mark is markClosing.
func removeMark(path string) {
	if mark, err := os.ReadFile(markOf(path)); err == nil && bytes.Equal(mark, markClosing) {
		_ = os.Remove(markOf(path))
	}
}

// writeMark writes the mark and syncs it.
func writeMark(path string, text []byte, flags int) error {
	f, err := os.OpenFile(markOf(path), os.O_WRONLY|flags, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil || flags == 0 {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}
