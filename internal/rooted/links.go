package rooted

import (
	"context"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// Tree is the absolute path of a tree. Its methods read files below that path, and no path leads out of the tree. They
// wait for nothing but the disk, and so ignore their context.
type Tree string

// Exists reports whether the tree's path is a directory, or may be one because an error of the disk hides what it is.
func (t Tree) Exists(context.Context) bool {
	info, err := os.Lstat(string(t))
	return err == nil && info.IsDir() || err != nil && !Absent(err)
}

// openRoot opens a directory as os.OpenRoot does. With "/." at the end of the path the kernel opens nothing but a
// directory: os.OpenRoot alone would wait for a writer if somebody put a FIFO in the place of the directory.
func openRoot(dir string) (*os.Root, error) { return os.OpenRoot(dir + "/.") }

// Readlink returns the target of the symlink name in the tree, as written; not_found if name does
// not exist, conflict if it is not a symlink.
func (t Tree) Readlink(_ context.Context, name string) (string, error) {
	const op = "file.readlink"
	root, err := openRoot(string(t))
	if err != nil {
		return "", fail(op, err)
	}
	defer root.Close()
	info, err := root.Lstat(name)
	switch {
	case err != nil:
		return "", fail(op, err)
	case info.Mode()&fs.ModeSymlink == 0:
		return "", holdfast.Errorf(holdfast.KindConflict, op, "the entry %s is not a symlink", holdfast.Quote(name))
	}
	target, err := root.Readlink(name)
	return target, fail(op, err)
}

// ReadDir returns the entries of a directory of the tree, in any order. It returns not_found if name does not exist,
// and too_large if the directory has more than most entries.
func (t Tree) ReadDir(_ context.Context, name string, most int) ([]fs.DirEntry, error) {
	const op = "file.list"
	root, err := openRoot(string(t))
	if err != nil {
		return nil, fail(op, err)
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fail(op, err)
	}
	defer f.Close()
	list, err := f.ReadDir(most + 1)
	if err != nil && err != io.EOF {
		return nil, fail(op, err)
	}
	if len(list) > most {
		return nil, holdfast.Errorf(holdfast.KindTooLarge, op, "the directory %s has more than %d entries", holdfast.Quote(name), most)
	}
	return list, nil
}
