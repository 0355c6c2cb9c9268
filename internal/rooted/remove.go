package rooted

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

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

// busy returns the error for a directory that cannot be removed, and says why.
func busy(name, why string) error {
	return holdfast.Errorf(holdfast.KindConflict, "tree.remove", "the directory %s cannot be removed: %s", holdfast.Quote(name), why).
		WithHint("stop the processes that use the tree, then try again")
}
