package tree

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

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
	// A directory that exists already keeps its mode.
	u.locked = slices.DeleteFunc(u.locked, func(d dirMode) bool {
		info, err := u.dir.Lstat(path.Join(to, d.path))
		return err == nil && info.IsDir()
	})
	if err := u.place(from, to); err != nil {
		return err
	}
	// Set modes in reverse order, those of the deepest directories first: with its new mode, a directory may no longer
	// allow changes of the directories below it.
	for i := len(u.locked) - 1; i >= 0; i-- {
		d := u.locked[i]
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

// place moves the unpacked tree from its staging directory to its name: with one rename, or with a merge if there is a
// directory with this name.
func (u *unpacker) place(from, to string) error {
	there, err := u.dir.Lstat(to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fail("tree.unpack", to, err)
	case u.to.File && there.IsDir():
		return inTheWay(to, "a directory")
	case u.to.File:
	case !there.IsDir():
		return inTheWay(to, "not a directory")
	default:
		// First check that every entry can be moved, so that a conflict changes nothing.
		if err := merge(u.dir, from, to, maxNames, func(string, string) error { return nil }); err != nil {
			return err
		}
		return merge(u.dir, from, to, maxNames, func(from, to string) error {
			return fail("tree.unpack", to, u.dir.Rename(from, to))
		})
	}
	return fail("tree.unpack", to, u.dir.Rename(from, to))
}

func inTheWay(name, what string) error {
	return holdfast.Errorf(holdfast.KindConflict, "tree.unpack", "cannot write %s: a file of that name exists and is %s", holdfast.Quote(name), what).
		WithHint("remove what exists there, or copy to another name")
}

// merge calls move for the entries in the directory from that are to be renamed into the directory to. It
// merges a directory that exists on both sides in the same way. A symlink counts as a file. room is how
// many bytes of names it may hold in memory.
func merge(dir *os.Root, from, to string, room int, move func(from, to string) error) error {
	entries, room, err := readNames(dir, from, room)
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
			err = merge(dir, a, b, room, move)
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

// readNames returns all names in a directory. It reads them before entries are renamed out of the
// directory. left is how much of room is left; if the names do not fit in room, it returns too_large.
func readNames(dir *os.Root, name string, room int) (names []string, left int, err error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	for {
		batch, err := f.Readdirnames(512)
		for _, n := range batch {
			room -= len(n) + 16
		}
		switch {
		case room < 0:
			return nil, 0, holdfast.Errorf(holdfast.KindTooLarge, "tree.unpack", "the names of the archive's entries that are merged into existing directories have more than %d MiB", maxNames>>20).
				WithHint("copy into a new directory, or copy less at once")
		case errors.Is(err, io.EOF):
			return names, room, nil
		case err != nil:
			return nil, 0, err
		}
		names = append(names, batch...)
	}
}
