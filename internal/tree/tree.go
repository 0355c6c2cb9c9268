// Package tree packs a file or a directory into a tar stream, and unpacks such a stream
// into a directory.
//
// It owns the rules about which files a copy includes and which archives are refused. boxd runs it with
// the identity of tools, the command line on the user's own disk. It imports the standard library,
// golang.org/x/sys and the vocabulary. Invariants: whatever an archive contains, and whatever other
// processes change meanwhile, only files in the directory are read, written or removed, and no file is
// opened in a way that can block; memory does not grow with the content of files; an archive that is
// refused or incomplete changes nothing (I-38).
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
	// piece is about how many bytes of content one call of Options.Do handles.
	piece = 256 << 10
	// maxEntries is the default of Options.MaxEntries.
	maxEntries = 1_000_000
	// maxDepth is how many directories deep a tree may be nested.
	maxDepth = 500
	// maxLinks is how many files with several names (hard links) Pack remembers. Any further one is
	// copied once for each of its names.
	maxLinks = 50_000
	// maxNames is how many bytes each of these may have in memory: the paths of files with hard links,
	// the paths of directories whose modes are set at the end, and the names in a merge.
	maxNames = 64 << 20
	// maxNamed is how many entries a list of a Copied names at most. Further entries are only counted.
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
	// Life is a name of letters and digits for the process that unpacks. Unpack first removes the files that processes
	// with another Life have left half unpacked in the same directory. If Life is empty, it removes nothing.
	Life string
	// Hidden reports whether a path below the open directory may not be copied. Pack leaves such a path out, and Unpack
	// refuses an archive with such a path. Nil hides no path.
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

// named adds an entry, a path with a reason, to a list of a Copied. If the list has maxNamed entries, it increments more
// instead.
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

// why returns the text of an error of the file system without its path.
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

// fail turns an error of the file system into one with a Kind and the name of the entry. If err is nil or
// has a Kind already, fail returns err unchanged.
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

// staging returns the name of a staging directory, in which an archive is unpacked before its entries are moved to their
// places.
func staging(life, random string) string { return ".holdfast-" + life + "-" + random + ".tmp" }

// stale reports whether name is that of a staging directory of a process with another Life.
func stale(name, life string) bool {
	rest, ok := strings.CutPrefix(name, ".holdfast-")
	rest, tmp := strings.CutSuffix(rest, ".tmp")
	of, random, two := strings.Cut(rest, "-")
	return ok && tmp && two && of != life && of != "" && len(random) == 16
}
