package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
	"github.com/holdfast-run/holdfast/internal/rooted"
)

// Restoring says how Restore works.
type Restoring struct {
	// Dir is the data directory to be made. It must not exist, or be empty.
	Dir string
	// Passphrase returns the passphrase of the keys of the archive; nil leaves them out.
	Passphrase func() (string, error)
	// Check looks at the restored directory before it gets its name. After its error nothing is restored.
	Check func(dir string, s Summary) error
}

// Restore makes a data directory from an archive, whole or not at all. The error is conflict if the directory
// has anything in it.
func Restore(ctx context.Context, r io.Reader, how Restoring) (s Summary, err error) {
	if err := empty(how.Dir); err != nil {
		return s, err
	}
	parent := filepath.Dir(how.Dir)
	if err := durable.MkdirAll(parent, 0o700); err != nil {
		return s, disk(err)
	}
	stage, err := os.MkdirTemp(parent, "."+filepath.Base(how.Dir)+"-restore-*")
	if err != nil {
		return s, disk(err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(stage)) }()
	if s, err = unpack(ctx, r, stage, how.Passphrase); err != nil {
		return s, err
	}
	if err := how.Check(stage, s); err != nil {
		return s, err
	}
	if err := rooted.Sync(stage); err != nil {
		return s, disk(err)
	}
	if err := durable.Publish(stage, how.Dir); err != nil {
		return s, disk(err)
	}
	return s, nil
}

// empty returns conflict unless a directory has nothing in it, or does not exist.
func empty(dir string) error {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(list) == 0 {
		return nil
	}
	if err != nil {
		return disk(err)
	}
	return holdfast.Errorf(holdfast.KindConflict, "restore", "the data directory %s is not empty: %s is in it", holdfast.Quote(dir), holdfast.Quote(list[0].Name())).
		WithHint("restore into a new one with --data DIR, or move this one away: mv %s %s.old", dir, dir)
}

func unpack(ctx context.Context, r io.Reader, stage string, passphrase func() (string, error)) (Summary, error) {
	root, err := os.OpenRoot(stage)
	if err != nil {
		return Summary{}, disk(err)
	}
	defer root.Close()
	file := func(f File, mode int64, from io.Reader) error {
		if leftOut(f.Name) {
			return nil // older releases archived plugin directories, but not all of their files
		}
		name := filepath.FromSlash(f.Name)
		if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
			return disk(err)
		}
		return put(root, name, fs.FileMode(mode)&0o700, from)
	}
	return Read(ctx, r, file, func(sealed []byte) error {
		if passphrase == nil {
			return nil
		}
		text, err := passphrase()
		if err != nil {
			return err
		}
		keys, err := OpenKeys(sealed, text)
		if err != nil {
			return err
		}
		for name, content := range keys {
			if !slices.Contains(KeyNames, name) {
				return damaged("it has a key %s, which no backup has", holdfast.Quote(name))
			}
			if err := put(root, name, 0o600, bytes.NewReader(content)); err != nil {
				return err
			}
		}
		return nil
	})
}

// put writes a file, which must not exist.
func put(root *os.Root, name string, mode fs.FileMode, from io.Reader) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o200)
	if err != nil {
		return disk(err)
	}
	// Errors of from are the archive's, those of the file are the disk's.
	_, err = io.Copy(onDisk{f}, from)
	if cerr := f.Chmod(mode); err == nil && cerr != nil {
		err = disk(cerr)
	}
	if cerr := f.Close(); err == nil && cerr != nil {
		err = disk(cerr)
	}
	return err
}

type onDisk struct{ f *os.File }

func (w onDisk) Write(b []byte) (int, error) {
	n, err := w.f.Write(b)
	if err != nil {
		err = disk(err)
	}
	return n, err
}
