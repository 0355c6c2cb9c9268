package rooted

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

// RemoveAll removes a tree: directories of any depth and mode, and symlinks but not their
// targets. It returns nil if the tree does not exist; if dir is a symlink, the symlink itself is
// removed. RemoveAll does not enter mounts: if the tree contains one, or if files keep being
// added, it removes what it can and returns conflict. It returns when the removal is durable;
// after an error it may be called again.
func RemoveAll(dir string) error {
	const op = "tree.remove"
	dir, err := absolute(op, dir)
	if err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fail(op, err)
	case info.IsDir():
		err = removeTree(dir)
	default:
		err = os.Remove(dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(op, err)
	}
	return fail(op, durable.SyncDir(filepath.Dir(dir)))
}

// Aside is what Discard adds to the path of a tree while it removes the tree.
const Aside = ".removing"

// Discard does what RemoveAll does, but the tree is never partly removed: after an error, a crash or a power cut it is at
// dir as it was, or nothing is there. For that, Discard first renames the tree to dir+Aside. What an earlier call left at
// that path is removed by the next call, also if dir does not exist.
func Discard(dir string) error {
	const op = "tree.remove"
	dir, err := absolute(op, dir)
	if err != nil {
		return err
	}
	if err := RemoveAll(dir + Aside); err != nil {
		return err
	}
	switch err := os.Rename(dir, dir+Aside); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.EBUSY):
		return busy(filepath.Base(dir), "something is mounted there")
	case err != nil:
		return fail(op, err)
	}
	if err := durable.SyncDir(filepath.Dir(dir)); err != nil {
		return fail(op, err)
	}
	return RemoveAll(dir + Aside)
}

// busy returns the error for a directory that cannot be removed, and says why.
func busy(name, why string) error {
	return holdfast.Errorf(holdfast.KindConflict, "tree.remove", "the directory %s cannot be removed: %s", holdfast.Quote(name), why).
		WithHint("stop the processes that use the tree, then try again")
}
