package files

import (
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/paths"
	"github.com/holdfast-run/holdfast/internal/tree"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Pack writes a file, or a directory with everything in it, to w as a tar archive. It calls do
// several times, each time with a function that does a piece of the work on the file system. It
// writes to w outside of do, so that no thread with the tools' identity waits for the receiver.
func (f *FS) Pack(req wire.PackRequest, w io.Writer, do func(func() error) error) (holdfast.Copied, error) {
	const op = "file.pack"
	var root *os.Root
	var name string
	err := do(func() (err error) { root, name, err = f.source(op, req.Path); return err })
	if err != nil {
		return holdfast.Copied{}, err
	}
	defer root.Close()
	return tree.Pack(root, name, w, tree.Options{Do: do, Hidden: f.hidden})
}

// hidden reports whether a path is outside the scope. rel is the path below the directory that root opened.
func (f *FS) hidden(rel string) bool {
	return f.door.scope != nil && !f.door.scope.holds(paths.Join(f.top, rel))
}

// Unpack unpacks a tar archive into the box; see tree.Unpack. It passes its work on the file system to
// do in pieces, as Pack does.
func (f *FS) Unpack(req wire.UnpackRequest, r io.Reader, life string, do func(func() error) error) (holdfast.Copied, error) {
	const op = "file.unpack"
	if req.Name == "." || req.Name == ".." || strings.ContainsAny(req.Name, "/\x00") || req.Name == "" && (req.Into || req.File && req.Path == "") {
		return holdfast.Copied{}, holdfast.Errorf(holdfast.KindInvalid, op, "%s cannot be the name of a copied file", holdfast.Quote(req.Name))
	}
	var root *os.Root
	var to tree.Target
	err := do(func() (err error) { root, to, err = f.destination(op, req); return err })
	if err != nil {
		return holdfast.Copied{}, err
	}
	defer root.Close()
	return tree.Unpack(root, to, r, tree.Options{Do: do, MaxBytes: req.MaxBytes, Life: life, Hidden: f.hidden})
}

// source opens the file or directory to pack. For a directory it returns the directory and the name
// "."; for a file it returns the directory that contains the file, and the file's name.
func (f *FS) source(op, shown string) (*os.Root, string, error) {
	path, err := f.door.resolveDir(op, shown)
	if err != nil {
		return nil, "", err
	}
	fd, err := f.door.open(op, shown, path, paths.Way)
	if err != nil {
		return nil, "", err
	}
	defer unix.Close(fd)
	isDir, err := directory(fd)
	if err != nil {
		return nil, "", fail(op, shown, err)
	}
	if isDir {
		root, err := f.root(op, shown, fd)
		return root, ".", err
	}
	return f.above(op, shown, fd)
}

// destination opens the directory that an archive is unpacked into, and returns the name that the
// archive's content gets in this directory. It makes the directory if it is missing.
func (f *FS) destination(op string, req wire.UnpackRequest) (*os.Root, tree.Target, error) {
	to := tree.Target{Name: req.Name, File: req.File}
	path, err := f.door.resolveDir(op, req.Path)
	if err != nil {
		return nil, to, err
	}
	fd, err := f.door.open(op, req.Path, path, paths.Way)
	switch {
	case err == nil:
	case !holdfast.IsKind(err, holdfast.KindNotFound):
		return nil, to, err
	case f.dangling(op, req.Path, path):
		return nil, to, holdfast.Errorf(holdfast.KindInvalid, op, "%s is a symbolic link whose target does not exist", holdfast.Quote(req.Path)).
			WithHint("remove what exists there, or copy to another name")
	case req.Into:
		root, err := f.made(op, req.Path, path)
		return root, to, err
	default:
		above, name := paths.Split(path)
		to.Name = name
		root, err := f.made(op, req.Path, above)
		return root, to, err
	}
	defer unix.Close(fd)
	isDir, err := directory(fd)
	switch {
	case err != nil:
		return nil, to, fail(op, req.Path, err)
	case isDir && req.File && req.Name == "":
		return nil, to, notRegular(op, req.Path, "a directory").WithHint(nameFile)
	case isDir:
		root, err := f.root(op, req.Path, fd)
		return root, to, err
	case req.Into || !req.File:
		return nil, to, holdfast.Errorf(holdfast.KindConflict, op, "the path %s exists and is not a directory", holdfast.Quote(req.Path)).
			WithHint("remove what exists there, or copy to another name")
	}
	root, name, err := f.above(op, req.Path, fd)
	to.Name = name
	return root, to, err
}

// dangling reports whether a path whose target does not exist is a symlink.
func (f *FS) dangling(op, shown, path string) bool {
	fd, err := f.door.open(op, shown, path, paths.Way|unix.O_NOFOLLOW)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil
}

// made opens a directory; it makes the directory and its parents if they are missing.
func (f *FS) made(op, shown, path string) (*os.Root, error) {
	if err := f.door.mkdirAll(op, shown, path); err != nil {
		return nil, fail(op, shown, err)
	}
	fd, err := f.door.open(op, shown, path, paths.Way|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return f.root(op, shown, fd)
}

// root turns an open directory into an os.Root, which package tree needs.
func (f *FS) root(op, shown string, fd int) (*os.Root, error) {
	root, err := paths.Root(fd)
	if err == nil && f.door.scope != nil {
		if f.top, err = paths.Where(fd); err != nil {
			_ = root.Close()
		}
	}
	if err != nil {
		return nil, fail(op, shown, err)
	}
	return root, nil
}

// above opens the directory that contains an open file, and returns the file's name in it.
func (f *FS) above(op, shown string, fd int) (*os.Root, string, error) {
	at, err := paths.Where(fd)
	if err != nil {
		return nil, "", fail(op, shown, err)
	}
	dir, name := paths.Split(at)
	in, err := f.door.open(op, shown, dir, paths.Way|unix.O_DIRECTORY)
	if err != nil {
		return nil, "", err
	}
	defer unix.Close(in)
	root, err := f.root(op, shown, in)
	return root, name, err
}

func directory(fd int) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return kindOfMode(uint32(st.Mode)) == kindDir, err
}
