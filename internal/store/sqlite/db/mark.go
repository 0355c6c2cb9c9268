package db

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-run/holdfast/internal/durable"
)

// The mark is a file next to a database. It records that a server has the database open or
// has begun to close it: only in the second case may the write-ahead log be missing at the
// next start.
var markOpen, markClosing = []byte("open\n"), []byte("shut\n")

func markOf(path string) string { return path + "-open" }

// LostLog describes the loss if the last server did not close the database and its
// write-ahead log is gone; it returns the empty string otherwise.
func LostLog(path string) string {
	mark, err := os.ReadFile(markOf(path))
	if err != nil || !bytes.Equal(mark, markOpen) || HasLog(path) {
		return ""
	}
	return path + "-wal is missing after a server that was killed: the newest events may be gone, " +
		"unless another program opened the database meanwhile and moved them into it"
}

// HasLog reports whether a database has a write-ahead log.
func HasLog(path string) bool {
	_, err := os.Lstat(path + "-wal")
	return !errors.Is(err, fs.ErrNotExist)
}

// setMark makes the mark of an open database, once its log exists.
func setMark(path string) error { return writeMark(path, markOpen, os.O_CREATE) }

// shutMark changes the mark in place, which needs no space. It has to run before SQLite
// removes the log. Without a mark it does nothing.
func shutMark(path string) error {
	if err := writeMark(path, markClosing, 0); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeMark removes the mark of a database that was closed.
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
