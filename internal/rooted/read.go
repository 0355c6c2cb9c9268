package rooted

import (
	"context"
	"io"
	"io/fs"
	"os"

	"github.com/holdfast-run/holdfast"
)

// Stamp identifies one state of a file: two stamps differ if the file has changed. Times are in nanoseconds since 1970.
type Stamp struct {
	Dev, Ino     uint64
	Size         int64
	Mtime, Ctime int64
}

// Stat returns the stamp of the regular file at a path below the tree's top, without reading the file. It returns
// invalid for a path that is not clean, not_found if the file or the tree does not exist, and conflict if the path
// leads to something else (a directory, a device, a symlink) or through a symlink.
func (t Tree) Stat(_ context.Context, name string) (Stamp, error) {
	const op = "file.stat"
	dir, err := absolute(op, string(t))
	if err != nil {
		return Stamp{}, err
	}
	if !fs.ValidPath(name) || name == "." {
		return Stamp{}, holdfast.Errorf(holdfast.KindInvalid, op, "the path %s is not a clean relative path of a file", holdfast.Quote(name))
	}
	st, err := stat(dir, name)
	return st, fail(op, err)
}

// ReadFile reads a regular file; too_large if the file has more than most bytes. Other errors are those of Stat. The
// stamp is that of the opened file, from before its content was read.
func (t Tree) ReadFile(ctx context.Context, name string, most int64) ([]byte, Stamp, error) {
	return t.readFile(ctx, name, most, open)
}

func (t Tree) readFile(ctx context.Context, name string, most int64, open func(dir, name string) (*os.File, Stamp, error)) ([]byte, Stamp, error) {
	const op = "file.read"
	if _, err := t.Stat(ctx, name); err != nil {
		return nil, Stamp{}, err
	}
	f, st, err := open(string(t), name)
	if err != nil {
		return nil, st, fail(op, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		return nil, st, holdfast.Errorf(holdfast.KindTooLarge, op, "the file %s is longer than %d bytes", holdfast.Quote(name), most)
	}
	return data, st, fail(op, err)
}

// Owned is a Tree whose ReadFile reads only what the owner of the tree's top directory may read. For other files it
// returns denied.
type Owned struct{ Tree }

// ReadFile does what Tree.ReadFile does, and returns denied for a file that the owner of the tree's top may not read.
func (t Owned) ReadFile(ctx context.Context, name string, most int64) ([]byte, Stamp, error) {
	return t.readFile(ctx, name, most, openOwned)
}

func irregular(op, name, what string) error {
	return holdfast.Errorf(holdfast.KindConflict, op, "the path %s is %s, which cannot be used as a file", holdfast.Quote(name), what)
}
