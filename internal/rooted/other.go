//go:build !linux

package rooted

import (
	"context"
	"errors"
	"io/fs"
	"os"
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
