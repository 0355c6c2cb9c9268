// Package tree packs a file or a directory into a tar stream, and unpacks such a stream
// into a directory.
//
// It owns the rules of what a copy includes and what of an archive is refused. boxd runs it with
// the identity of tools, the command line on the user's own disk; it imports the standard
// library, golang.org/x/sys and the vocabulary. Invariants: whatever an archive contains, and
// whoever changes the tree meanwhile, only files in the directory are read, written or removed,
// and no file is opened whose opening could block; memory does not grow with the content; an
// archive that cannot be unpacked completely changes nothing (I-38).
//
// A copy includes names, content, permission bits, modification times to the second, symbolic
// links as they are, and hard links within the tree. It does not include owners, extended
// attributes and holes of sparse files.
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
	// piece is how many bytes of content are handled in one run of Options.Do.
	piece = 256 << 10
	// maxEntries is the default of Options.MaxEntries.
	maxEntries = 1_000_000
	// maxDepth is how many directories deep a tree may be nested.
	maxDepth = 500
	// maxLinks is how many inodes with several names are remembered; a further one is copied once
	// for each of its names.
	maxLinks = 50_000
	// maxNamed is how many entries each list of a Copied names; the rest is only counted.
	maxNamed = 20
)

// Options configure a copy. The zero value means the defaults.
type Options struct {
	// Do runs functions that work on the file system; if it is nil, they run directly. boxd runs them
	// on a thread with the identity of tools. They never wait for the reader or writer of the stream.
	Do func(func() error) error
	// MaxBytes limits the content of an archive that is unpacked; 0 means no limit.
	MaxBytes int64
	// MaxEntries limits the number of entries of an archive; 0 means a million.
	MaxEntries int64
	// Life identifies the process that unpacks, by letters and digits: Unpack first removes what a process
	// with another Life left half unpacked in the same directory. If it is empty, nothing is removed.
	Life string
	// Hidden reports whether a path below the open directory may not be copied: Pack leaves it out, and Unpack refuses
	// an archive that has it. Nil hides none.
	Hidden func(path string) bool
}

func (o Options) defaults() Options {
	if o.Do == nil {
		o.Do = func(fn func() error) error { return fn() }
	}
	if o.Hidden == nil {
		o.Hidden = func(string) bool { return false }
	}
	if o.MaxEntries <= 0 {
		o.MaxEntries = maxEntries
	}
	return o
}

// Root opens a directory on the caller's own disk, following symlinks.
func Root(op, dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fail(op, dir, err)
	}
	return root, nil
}

// named adds an entry to a list of a Copied, or increments more if the list has maxNamed entries.
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

// why returns the cause of an error of the file system, without the path.
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

// fail gives an error of the file system a Kind and the name of the entry. It returns an error
// that has a Kind unchanged.
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

// staging returns the name of a staging directory, which holds an archive until it is completely unpacked.
func staging(life, random string) string { return ".holdfast-" + life + "-" + random + ".tmp" }

// stale reports whether name is a staging directory of another life, that is of an earlier process.
func stale(name, life string) bool {
	rest, ok := strings.CutPrefix(name, ".holdfast-")
	rest, tmp := strings.CutSuffix(rest, ".tmp")
	of, random, two := strings.Cut(rest, "-")
	return ok && tmp && two && of != life && of != "" && len(random) == 16
}
