// Package tree packs a file or a directory into a tar stream, and unpacks such a stream
// into a directory.
//
// It owns what goes along in a copy and what of an archive is refused. boxd runs it with
// the identity of tools, the command line on the user's own disk; it imports the standard
// library, golang.org/x/sys and the vocabulary. Invariants: whatever an archive holds, and
// whoever changes the tree meanwhile, nothing outside the directory is read, written or
// removed, and nothing is opened that could block; memory does not grow with the content;
// an archive that cannot be unpacked whole changes nothing (I-38).
//
// Names, content, permission bits, modification times to the second, symbolic links as
// they are and hard links within the tree go along. Owners, extended attributes and holes
// do not.
package tree

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/holdfast-run/holdfast"
)

const (
	// piece is how much content is handled by one visit to the file system.
	piece = 256 << 10
	// maxEntries is the default of Options.MaxEntries.
	maxEntries = 1_000_000
	// maxDepth is how many directories may lie in each other.
	maxDepth = 500
	// maxLinks is how many inodes with several names are remembered; further ones are
	// copied once per name.
	maxLinks = 50_000
	// maxNamed is how many entries of each kind a Copied names.
	maxNamed = 20
)

// Options configure a copy. The zero value has the defaults.
type Options struct {
	// Do runs work on the file system; nil runs it directly. boxd runs it on a thread
	// with the identity of tools, and no reader or writer of the stream is waited for there.
	Do func(func() error) error
	// MaxBytes bounds the content of an archive that is unpacked; 0 is no bound.
	MaxBytes int64
	// MaxEntries bounds the entries of an archive; 0 is a million.
	MaxEntries int64
	// Life names the process that unpacks, in letters and digits: what an earlier one left
	// half unpacked in the same directory is removed. Empty removes nothing.
	Life string
}

func (o Options) defaults() Options {
	if o.Do == nil {
		o.Do = func(fn func() error) error { return fn() }
	}
	if o.MaxEntries <= 0 {
		o.MaxEntries = maxEntries
	}
	return o
}

// Root opens a directory of the caller's own disk, links followed.
func Root(op, dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fail(op, dir, err)
	}
	return root, nil
}

// named adds an entry to a list of a Copied, and counts those beyond maxNamed.
func named(list *[]string, more *int64, path, why string) {
	if len(*list) == maxNamed {
		*more++
		return
	}
	if path == "" {
		path = "."
	}
	*list = append(*list, path+": "+why)
}

// why is the cause of an error of the file system, without the path.
func why(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		err = le.Err
	}
	return err.Error()
}

// fail gives an error of the file system its Kind and names the entry. Errors that have
// a Kind pass unchanged.
func fail(op, name string, err error) error {
	var known *holdfast.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	kind, hint := holdfast.KindInternal, ""
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		kind = holdfast.KindNotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		kind = holdfast.KindDenied
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, syscall.EBUSY):
		kind = holdfast.KindConflict
	case errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ELOOP):
		kind = holdfast.KindInvalid
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		kind, hint = holdfast.KindTooLarge, "free space on the disk that the files go to"
	}
	e := holdfast.Errorf(kind, op, "%s: %s", holdfast.Quote(name), why(err))
	if hint != "" {
		e = e.WithHint("%s", hint)
	}
	return e
}

// staging is the name of a directory for what is not unpacked whole yet.
func staging(life, random string) string { return ".holdfast-" + life + "-" + random + ".tmp" }

// stale reports whether a name is a staging directory of an earlier life.
func stale(name, life string) bool {
	rest, ok := strings.CutPrefix(name, ".holdfast-")
	rest, tmp := strings.CutSuffix(rest, ".tmp")
	of, random, two := strings.Cut(rest, "-")
	return ok && tmp && two && of != life && of != "" && len(random) == 16
}
