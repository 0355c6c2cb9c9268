// Package durable writes files and directories so that after a power cut each of them is either complete or as it was
// before, and never cut short or empty.
//
// Packages that write such files import it; it imports the standard library only. Invariant (I-35): Create, Replace and
// Publish write a name to the disk only after the content of the file or directory, and both are on the disk when they
// return without an error.
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

// Create makes a file of mode 0600 with the content that write writes. If the path exists, Create changes nothing and
// returns fs.ErrExist: of two that create the same path at once, one succeeds.
func Create(path string, write func(*os.File) error) error {
	return place(path, write, func(temp string) error {
		err := os.Link(temp, path)
		return errors.Join(err, os.Remove(temp))
	})
}

// Replace writes a file of mode 0600 as Create does, but replaces a file that exists at the path.
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
		// The error is ignored: if only a later step failed, the temporary file is gone already.
		_ = os.Remove(f.Name())
		return err
	}
	return SyncDir(dir)
}

// Write calls write with a new file, syncs the file unless write fails, and closes it in any case. The file's name is
// on the disk only after its directory was synced too, as Publish does.
func Write(f *os.File, write func(*os.File) error) error {
	err := write(f)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Publish renames the finished directory stage to path, which must be on the same file system. Nothing but an empty
// directory may be at path. All files in stage must have been written with Write. After an error the directory is at
// stage or at path.
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

// MkdirAll makes a directory and its missing parents. The names of the new directories are on the disk when it returns
// without an error.
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

// SyncDir makes the names in a directory durable, by fsync.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
