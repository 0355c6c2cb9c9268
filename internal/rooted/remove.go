package rooted

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

// RemoveAll removes a tree: directories of any depth and mode, symlinks but not
// what they point to. A tree that is not there is no error; a symlink in its
// place is removed itself. It does not enter mounts: with one inside, or with
// somebody who keeps adding files, it removes what it can and says conflict. It
// returns when the removal is durable; after an error it may be called again.
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

// busy says that a tree could not be emptied.
func busy(name, why string) error {
	return holdfast.Errorf(holdfast.KindConflict, "tree.remove", "%s: %s", holdfast.Quote(name), why).
		WithHint("stop what uses it, then repeat")
}
