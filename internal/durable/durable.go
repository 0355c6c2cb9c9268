// Package durable writes the small files that a start needs, so that after a power cut
// each of them is whole or absent, and never empty.
//
// Packages that keep such files import it; it imports the standard library. Invariant
// (I-35): Create and Replace put the name on disk after its content, and both are on
// disk when they return.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Bytes returns a write function that writes b, for Create and Replace.
func Bytes(b []byte) func(*os.File) error {
	return func(f *os.File) error {
		_, err := f.Write(b)
		return err
	}
}

// Create makes a file of mode 0600 with the content that write writes. If the file
// exists, it stays and the error is fs.ErrExist: of two concurrent creators one wins.
func Create(path string, write func(*os.File) error) error {
	return place(path, write, func(temp string) error {
		err := os.Link(temp, path)
		return errors.Join(err, os.Remove(temp))
	})
}

// Replace is Create for a name that may exist: it replaces the file.
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
		// If only a later step failed, it is gone already.
		_ = os.Remove(f.Name())
		return err
	}
	return SyncDir(dir)
}

// MkdirAll makes a directory and its missing parents. The names of the new ones are on
// disk when it returns.
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
