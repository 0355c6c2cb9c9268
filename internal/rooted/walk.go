package rooted

import (
	"context"
	"io/fs"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Bounds limit a walk. Entries and Depth must be positive.
type Bounds struct {
	// Entries is how many files and directories a walk looks at, the top included.
	Entries int
	// Depth is how deep it goes: 1 reads the top directory only.
	Depth int
	// Mounts lets it enter what is mounted in the tree. Only trees that no agent can
	// write may have it set.
	Mounts bool
	// Unordered lets the files of a directory come before its directories, and both in any
	// order. The walk then keeps the names of directories only.
	Unordered bool
}

// Entry is one file or directory of a tree, as the walk found it.
type Entry struct {
	// Name is the last element of the path; "." for the top.
	Name string
	// Depth is 0 for the top, 1 for its entries.
	Depth int
	// Mode is the type and the permissions, Size the length in bytes, Disk the bytes of the
	// blocks in use.
	Mode         fs.FileMode
	Size, Disk   int64
	Mtime, Ctime time.Time
	Dev, Ino     uint64
	Nlink        uint32
	UID, GID     uint32
	// Again: the walk has returned this directory before, and now says why it could not
	// read all of it.
	Again bool

	in   *parent
	skip *bool
}

// parent is a directory on the way to an entry: a path of any length without a string for
// each.
type parent struct {
	in   *parent
	name string
}

// Path returns the path of the entry below the top, with slashes; "." for the top.
func (e Entry) Path() string {
	n := len(e.Name)
	for p := e.in; p != nil; p = p.in {
		n += len(p.name) + 1
	}
	if e.in == nil {
		return e.Name
	}
	b := make([]byte, n)
	n -= copy(b[n-len(e.Name):], e.Name)
	for p := e.in; p != nil; p = p.in {
		n--
		b[n] = '/'
		n -= copy(b[n-len(p.name):], p.name)
	}
	return string(b)
}

// Stamp returns the stamp of the entry, which equals that of Tree.Stat and Tree.ReadFile as long as
// the file stays the same.
func (e Entry) Stamp() Stamp {
	return Stamp{Dev: e.Dev, Ino: e.Ino, Size: e.Size, Mtime: e.Mtime.UnixNano(), Ctime: e.Ctime.UnixNano()}
}

// Skip keeps the walk out of the directory that it just returned.
func (e Entry) Skip() { *e.skip = true }

// Walk returns the files and directories of a tree: a directory before what it holds, and
// the entries of a directory by the bytes of their names. It follows no symlink and enters
// no mount, whatever changes meanwhile: what it returns below a directory lay in exactly
// that directory. What is removed meanwhile is left out.
//
// An error with an entry is about that entry only, and the walk goes on: a directory could
// not be read (denied and others), lies deeper than the bound (too_large), was moved away
// while the walk was below it, or a mount is there (conflict). An error with the zero Entry ends the
// walk: the top is not there or not a directory, there are more entries than the bound
// (too_large, after that many entries), or ctx ended. So a caller that ends at the first
// error has seen a whole tree or knows that it has not.
func Walk(ctx context.Context, dir string, b Bounds) iter.Seq2[Entry, error] {
	const op = "tree.walk"
	return func(yield func(Entry, error) bool) {
		top, err := absolute(op, dir)
		if err == nil && (b.Entries <= 0 || b.Depth <= 0) {
			err = holdfast.Errorf(holdfast.KindInvalid, op, "a walk needs bounds")
		}
		if err == nil {
			err = walk(ctx, top, b, yield)
		}
		switch {
		case err == nil:
		case ctx.Err() != nil:
			yield(Entry{}, ctx.Err())
		default:
			yield(Entry{}, fail(op, err))
		}
	}
}

// tooMany and tooDeep are the errors of a walk that meets its bounds.
func (b Bounds) tooMany() error {
	return holdfast.Errorf(holdfast.KindTooLarge, "tree.walk", "the tree holds more than %d files and directories", b.Entries)
}

func (b Bounds) tooDeep(e Entry) error {
	return holdfast.Errorf(holdfast.KindTooLarge, "tree.walk", "%s lies %d directories deep: what it holds is not read", holdfast.Quote(e.Path()), b.Depth)
}

// isMount is the error of a mount in the tree, by its path.
func isMount(e Entry) error {
	return holdfast.Errorf(holdfast.KindConflict, "tree.walk", "%s: a mount is there", holdfast.Quote(e.Path()))
}

// about is the error of a system call for an entry.
func about(e Entry, call string, err error) error {
	return &os.PathError{Op: call, Path: holdfast.Quote(e.Path()), Err: err}
}

// compareNames orders entries of a directory.
func compareNames(a, b name) int { return strings.Compare(a.text, b.text) }

// name is an entry of a directory that the walk has read and not looked at.
type name struct {
	text string
	dir  bool
}
