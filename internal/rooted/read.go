package rooted

import (
	"io"
	"io/fs"

	"github.com/holdfast-run/holdfast"
)

// Stamp tells one state of a file from another. Comparable.
type Stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64
}

// Stat looks at a regular file of a tree, by its clean path below dir, without
// opening it. Not_found when it is not there, or the tree is not; conflict when
// something else is: a directory, a device, a symlink on the way.
func Stat(dir, name string) (Stamp, error) {
	const op = "file.stat"
	dir, err := absolute(op, dir)
	if err != nil {
		return Stamp{}, err
	}
	if !fs.ValidPath(name) || name == "." {
		return Stamp{}, holdfast.Errorf(holdfast.KindInvalid, op, "%s is not a clean relative path", holdfast.Quote(name))
	}
	st, err := stat(dir, name)
	return st, fail(op, err)
}

// ReadFile reads a regular file of a tree of at most so many bytes, too_large for
// more. Errors as Stat. The stamp is of what was read.
func ReadFile(dir, name string, most int64) ([]byte, Stamp, error) {
	const op = "file.read"
	if _, err := Stat(dir, name); err != nil {
		return nil, Stamp{}, err
	}
	f, st, err := open(dir, name)
	if err != nil {
		return nil, st, fail(op, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		return nil, st, holdfast.Errorf(holdfast.KindTooLarge, op, "%s is over %d bytes", holdfast.Quote(name), most)
	}
	return data, st, fail(op, err)
}

func irregular(op, name, what string) error {
	return holdfast.Errorf(holdfast.KindConflict, op, "%s is %s", holdfast.Quote(name), what)
}
