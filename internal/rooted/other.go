//go:build !linux

package rooted

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// removeTree removes a tree with the standard library, since openat2 exists on Linux only. It follows no symlink. Boxes
// that isolate agents exist on Linux only, too.
func removeTree(dir string) error {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil && d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// syncFS is not supported on this system.
func syncFS(string) error { return errors.ErrUnsupported }

// space measures nothing on this system: it returns a disk of one byte that is free, so that no disk counts as full.
func space(string) (Space, error) { return Space{Bytes: 1, Free: 1}, nil }

// walker is the state of one walk.
type walker struct{ skip bool }

// walk uses os.Root instead of openat2: no path leads out of the tree. Its entries have no stat but mode, size (also as
// Disk) and modification time, and it enters mounts.
func walk(ctx context.Context, dir string, b Bounds, yield func(Entry, error) bool) error {
	info, err := os.Lstat(dir)
	if err == nil && !info.IsDir() {
		err = holdfast.Errorf(holdfast.KindConflict, "tree.walk", "the tree %s is not a directory", holdfast.Quote(dir))
	}
	if err != nil {
		return err
	}
	root, err := openRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	w, seen := &walker{}, 0
	return fs.WalkDir(root.FS(), ".", func(at string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if d == nil {
			return err
		}
		e := Entry{Name: path.Base(at), w: w, Again: err != nil}
		if at != "." {
			e.Depth = strings.Count(at, "/") + 1
			for _, name := range strings.Split(path.Dir(at), "/") {
				if name != "." {
					e.in = &parent{in: e.in, name: name}
				}
			}
		}
		info, ierr := d.Info()
		if errors.Is(ierr, fs.ErrNotExist) {
			return nil
		}
		if ierr == nil {
			e.Mode, e.Size, e.Disk, e.Mtime, e.Ctime = info.Mode(), info.Size(), info.Size(), info.ModTime(), time.Unix(0, 0)
		}
		if err == nil {
			err = ierr
			if seen++; seen > b.Entries {
				return b.tooMany()
			}
		}
		below := d.IsDir() && err == nil
		if below && e.Depth >= b.Depth {
			below, err = false, b.tooDeep(e)
		}
		w.skip = false
		switch {
		case !yield(e, fail("tree.walk", err)):
			return fs.SkipAll
		case d.IsDir() && (w.skip || !below):
			return fs.SkipDir
		}
		return nil
	})
}

func stat(dir, name string) (Stamp, error) {
	root, err := openRoot(dir)
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
			return Stamp{}, irregular("file.open", p, "not a regular file")
		}
	}
	info, err := root.Lstat(name)
	if err != nil {
		return Stamp{}, err
	}
	return Stamp{Size: info.Size(), Mtime: info.ModTime().UnixNano()}, nil
}

func open(dir, name string) (*os.File, Stamp, error) {
	st, err := stat(dir, name)
	if err != nil {
		return nil, st, err
	}
	root, err := openRoot(dir)
	if err != nil {
		return nil, st, err
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	return f, st, err
}

// openOwned is the same as open on this system: the kernel decides what the server's user may read.
func openOwned(dir, name string) (*os.File, Stamp, error) { return open(dir, name) }
