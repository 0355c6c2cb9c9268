// Package durable writes the small files that a start counts on, so that a power cut
// leaves each of them whole or absent, and never empty.
//
// Packages that keep such files import it; it imports the standard library. Invariant
// (I-35): a name that Create or Replace made is on disk after its content is, and both
// are on disk when they return.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Bytes is the content of a file for Create and Replace.
func Bytes(b []byte) func(*os.File) error {
	return func(f *os.File) error {
		_, err := f.Write(b)
		return err
	}
}

// Create makes a file of mode 0600 with what write puts into it. Where there is one it
// is fs.ErrExist and the former stays: of two that create it at once one wins.
func Create(path string, write func(*os.File) error) error {
	return place(path, write, func(temp string) error {
		err := os.Link(temp, path)
		return errors.Join(err, os.Remove(temp))
	})
}

// Replace makes a file of mode 0600 with what write puts into it, in place of one that
// may be there.
func Replace(path string, write func(*os.File) error) error {
	return place(path, write, func(temp string) error { return os.Rename(temp, path) })
}

func place(path string, write func(*os.File) error, name func(temp string) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*.tmp")
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = name(f.Name())
	}
	if err != nil {
		// It is gone already where only a later step failed.
		_ = os.Remove(f.Name())
		return err
	}
	return SyncDir(dir)
}

// MkdirAll makes a directory and its missing parents. The names of those that it made
// are on disk when it returns.
func MkdirAll(path string, mode fs.FileMode) error {
	var made []string
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil || at == filepath.Dir(at) {
			break
		}
		made = append(made, at)
	}
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	for _, dir := range made {
		if err := SyncDir(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return nil
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
