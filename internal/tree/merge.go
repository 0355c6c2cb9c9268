package tree

import (
	"errors"
	"io/fs"
	"os"
	"path"

	"github.com/holdfast-run/holdfast"
)

// commit makes the staged tree durable and moves it to its place.
func (u *unpacker) commit() error {
	if err := syncFS(u.top); err != nil {
		return fail("tree.unpack", u.to.Name, err)
	}
	from, to := u.tmp+"/"+staged, u.to.Name
	if to == "" {
		to = "."
	}
	merged, err := u.place(from, to)
	if err != nil {
		return err
	}
	// In reverse order, the deepest directories first: a directory's new mode may prevent changes of those below it.
	for i := len(u.locked) - 1; i >= 0; i-- {
		d := u.locked[i]
		if merged && d.path == "." {
			continue // the target directory existed before the archive was unpacked, and keeps its mode
		}
		if err := chmodDir(u.dir, path.Join(to, d.path), d.mode); err != nil {
			return fail("tree.unpack", d.path, err)
		}
	}
	if err := u.discard(); err != nil {
		return fail("tree.unpack", u.tmp, err)
	}
	u.tmp = ""
	return fail("tree.unpack", u.to.Name, syncFS(u.dir))
}

// place moves the staged tree to its name: by a single rename, or by merging if a directory has that name already.
func (u *unpacker) place(from, to string) (merged bool, err error) {
	there, err := u.dir.Lstat(to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return false, fail("tree.unpack", to, err)
	case u.to.File && there.IsDir():
		return false, inTheWay(to, "a directory")
	case u.to.File:
	case !there.IsDir():
		return false, inTheWay(to, "not a directory")
	default:
		// First check that every entry can be moved, so that a conflict changes nothing.
		if err := merge(u.dir, from, to, func(string, string) error { return nil }); err != nil {
			return false, err
		}
		return true, merge(u.dir, from, to, func(from, to string) error {
			return fail("tree.unpack", to, u.dir.Rename(from, to))
		})
	}
	return false, fail("tree.unpack", to, u.dir.Rename(from, to))
}

func inTheWay(name, what string) error {
	return holdfast.Errorf(holdfast.KindConflict, "tree.unpack", "cannot write %s: a file of that name exists and is %s", holdfast.Quote(name), what).
		WithHint("remove what exists there, or copy to another name")
}

// merge calls move for each entry below from that must be renamed to bring it below to. It
// descends into directories that exist on both sides. A symlink counts as a file.
func merge(dir *os.Root, from, to string, move func(from, to string) error) error {
	entries, err := readNames(dir, from)
	if err != nil {
		return fail("tree.unpack", to, err)
	}
	for _, name := range entries {
		a, b := from+"/"+name, path.Join(to, name)
		info, err := dir.Lstat(a)
		if err != nil {
			return fail("tree.unpack", b, err)
		}
		there, err := dir.Lstat(b)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = move(a, b)
		case err != nil:
			err = fail("tree.unpack", b, err)
		case info.IsDir() && there.IsDir():
			err = merge(dir, a, b, move)
		case there.IsDir():
			err = inTheWay(b, "a directory")
		case info.IsDir():
			err = inTheWay(b, "not a directory")
		default:
			err = move(a, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readNames reads all names of a directory at once, because entries are renamed out of it meanwhile.
func readNames(dir *os.Root, name string) ([]string, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}
