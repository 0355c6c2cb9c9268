//go:build !linux

package rooted

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// removeTree without openat2: the standard library's, which does not follow
// symlinks. Boxes that isolate exist on Linux only.
func removeTree(dir string) error {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil && d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// syncFS has no implementation here.
func syncFS(string) error { return errors.ErrUnsupported }

// space is not known here: there is no limit to hold.
func space(string) (Space, error) { return Space{Bytes: 1, Free: 1}, nil }

func usage(ctx context.Context, dir string, most int) (Usage, error) {
	var u Usage
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && d == nil:
			return err
		case err != nil:
			u.Partial = true
			return nil
		case u.Entries >= most:
			u.Partial = true
			return fs.SkipAll
		}
		u.Entries++
		if info, err := d.Info(); err == nil {
			u.Bytes += info.Size()
		} else if !errors.Is(err, fs.ErrNotExist) {
			u.Partial = true
		}
		return nil
	})
	return u, err
}

func stat(dir, name string) (Stamp, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Stamp{}, err
	}
	defer root.Close()
	for p := name; p != "."; p = path.Dir(p) {
		info, err := root.Lstat(p)
		switch {
		case err != nil:
			return Stamp{}, err
		case info.Mode()&fs.ModeSymlink != 0:
			return Stamp{}, irregular("file.open", p, "a symlink")
		case p == name && !info.Mode().IsRegular():
			return Stamp{}, irregular("file.open", p, "no regular file")
		}
	}
	info, err := root.Lstat(name)
	if err != nil {
		return Stamp{}, err
	}
	return Stamp{size: info.Size(), mtime: info.ModTime().UnixNano()}, nil
}

func open(dir, name string) (*os.File, Stamp, error) {
	st, err := stat(dir, name)
	if err != nil {
		return nil, st, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, st, err
	}
	defer root.Close()
	f, err := root.Open(name)
	return f, st, err
}
