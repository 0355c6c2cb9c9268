// Package durable writes the files and directories that a start needs, so that after a
// power cut each of them is whole or absent, and never empty.
//
// Packages that keep such files import it; it imports the standard library. Invariant
// (I-35): Create, Replace and Publish put a name on disk after what it names, and both are
// on disk when they return.
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
	if err = Write(f, write); err == nil {
		err = name(f.Name())
	}
	if err != nil {
		// If only a later step failed, it is gone already.
		_ = os.Remove(f.Name())
		return err
	}
	return SyncDir(dir)
}

// Write runs write on a new file, syncs the file and closes it, also after an error. The
// file's name is not on disk until its directory is synced: for that Publish.
func Write(f *os.File, write func(*os.File) error) error {
	err := write(f)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Publish gives a finished directory the name path, which must lie in the same file system
// and be free. Write has written all files in it. After an error stage is still there, or
// the name is.
func Publish(stage, path string) error {
	err := filepath.WalkDir(stage, func(at string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = SyncDir(at)
		}
		return err
	})
	if err == nil {
		err = os.Rename(stage, path)
	}
	if err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
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
