package rooted

import (
	"io"
	"io/fs"
	"os"

	"github.com/holdfast-run/holdfast"
)

// Readlink returns the target of the symlink at a path below dir, as written. No path
// leads out of dir. not_found if the path does not exist; conflict if it is not a
// symlink.
func Readlink(dir, name string) (string, error) {
	const op = "file.readlink"
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fail(op, err)
	}
	defer root.Close()
	info, err := root.Lstat(name)
	switch {
	case err != nil:
		return "", fail(op, err)
	case info.Mode()&fs.ModeSymlink == 0:
		return "", holdfast.Errorf(holdfast.KindConflict, op, "%s is no link", holdfast.Quote(name))
	}
	target, err := root.Readlink(name)
	return target, fail(op, err)
}

// ReadDir returns the entries of a directory below dir, in any order; too_large if
// there are more than most. Other errors are those of Readlink.
func ReadDir(dir, name string, most int) ([]fs.DirEntry, error) {
	const op = "file.list"
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fail(op, err)
	}
	defer root.Close()
	f, err := root.Open(name)
	if err != nil {
		return nil, fail(op, err)
	}
	defer f.Close()
	list, err := f.ReadDir(most + 1)
	if err != nil && err != io.EOF {
		return nil, fail(op, err)
	}
	if len(list) > most {
		return nil, holdfast.Errorf(holdfast.KindTooLarge, op, "%s holds more than %d entries", holdfast.Quote(name), most)
	}
	return list, nil
}
