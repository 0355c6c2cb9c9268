package rooted

import (
	"cmp"
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
	// Entries is how many files and directories a walk visits at most, with the top directory.
	Entries int
	// Depth is how many levels deep the walk goes: 1 reads the top directory only.
	Depth int
	// Mounts allows the walk to enter file systems that are mounted in the tree. It may be set
	// only for trees that no agent can write.
	Mounts bool
	// Untouched makes the walk read only what the owner of the top directory may read: for other directories, and from
	// Entry.Open for other files, the error is denied. Without it, Entry.Open makes a file readable for its owner while it
	// opens the file.
	Untouched bool
	// Unordered allows the walk to return the files of a directory before its directories, and
	// both in any order. Then it holds only the names of directories in memory.
	Unordered bool
	// Top, unless it is nil, is called with the stat of the open top directory before anything in the directory is read.
	// Its error ends the walk.
	Top func(Entry) error

	// names, for tests only, replaces maxHeld unless it is 0.
	names int
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
	// Again means that the walk has returned this directory before, and returns it once more with the error why the walk
	// could not read all of the directory.
	Again bool

	in *parent
	w  *walker
}

// parent is a directory above an entry. A chain of parents represents a path of any length
// without a string for each entry.
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

// mayRead reports whether the owner of the directory e may read another entry and, if that is a directory, pass through
// it. It decides by the mode, owner and group of the entry, not by other groups of the owner or access control lists.
// It is for a server that runs as root: for an agent, root would otherwise read files that the owner of e may not read.
// For any other user of the server it returns true, because the kernel checks what that user may read.
func (e Entry) mayRead(other Entry) bool {
	if os.Geteuid() != 0 {
		return true
	}
	need := fs.FileMode(0o4)
	if other.Mode.IsDir() {
		need = 0o5
	}
	switch {
	case e.UID == other.UID:
		need <<= 6
	case e.GID == other.GID:
		need <<= 3
	}
	return other.Mode&need == need
}

// Stamp returns the stamp of the entry. Tree.Stat and Tree.ReadFile return the same stamp as long as the file does not
// change.
func (e Entry) Stamp() Stamp {
	return Stamp{Dev: e.Dev, Ino: e.Ino, Size: e.Size, Mtime: e.Mtime.UnixNano(), Ctime: e.Ctime.UnixNano()}
}

// Skip makes the walk skip the content of the directory that it just returned.
func (e Entry) Skip() { e.w.skip = true }

// Walk returns the files and directories of a tree: a directory before its content, and (unless Bounds.Unordered is
// set) the entries of a directory sorted by the bytes of their names. It follows no symlink and (unless Bounds.Mounts
// is set) enters no mount, whatever changes meanwhile: an entry that it returns below a directory was in exactly that
// directory. It leaves out files that are removed meanwhile.
//
// An error together with an entry concerns that entry only, and the walk continues: a directory could not be read
// (denied and others), is deeper than the limit (too_large), or was moved away while the walk was below it (conflict),
// or something is mounted on the entry (conflict). An error with the zero Entry ends the walk: the top does not exist
// or is not a directory, Bounds.Top refused it, the tree has more entries than the limit (too_large, after that many
// entries), the names of its directories need too much memory (too_large), or ctx ended. So a caller that stops at the
// first error has either seen the whole tree or knows that it has not.
func Walk(ctx context.Context, dir string, b Bounds) iter.Seq2[Entry, error] {
	const op = "tree.walk"
	return func(yield func(Entry, error) bool) {
		top, err := absolute(op, dir)
		if err == nil && (b.Entries <= 0 || b.Depth <= 0) {
			err = holdfast.Errorf(holdfast.KindInvalid, op, "the walk of a directory tree needs limits above 0 for entries and depth")
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

// tooMany, tooLong and tooDeep return the errors of a walk for its limits: of entries, of memory for names, of depth.
func (b Bounds) tooMany() error {
	return holdfast.Errorf(holdfast.KindTooLarge, "tree.walk", "the tree holds more than %d files and directories", b.Entries)
}

// maxHeld is about how many bytes of memory the names of the directories above one entry may need: all names of a
// directory are sorted before the first is returned. nameBytes is what a name needs besides its text.
const (
	maxHeld   = 128 << 20
	nameBytes = 32
)

func (b Bounds) mostHeld() int { return cmp.Or(b.names, maxHeld) }

func (b Bounds) tooLong() error {
	return holdfast.Errorf(holdfast.KindTooLarge, "tree.walk", "the names in a directory of the tree, and in the directories above it, need more than %d KiB of memory", b.mostHeld()>>10)
}

func (b Bounds) tooDeep(e Entry) error {
	return holdfast.Errorf(holdfast.KindTooLarge, "tree.walk", "the directory %s is %d levels deep, so its content was not read", holdfast.Quote(e.Path()), b.Depth)
}

// isMount returns the error that something is mounted at the entry's path.
func isMount(e Entry) error {
	return holdfast.Errorf(holdfast.KindConflict, "tree.walk", "a file system is mounted at %s, and mounted file systems are not read", holdfast.Quote(e.Path()))
}

// about adds the name of a system call and the path of an entry to the error of the call.
func about(e Entry, call string, err error) error {
	return &os.PathError{Op: call, Path: holdfast.Quote(e.Path()), Err: err}
}

// compareNames orders the entries of a directory by name.
func compareNames(a, b name) int { return strings.Compare(a.text, b.text) }

// name is an entry of a directory that the walk has read but not yet returned.
type name struct {
	text string
	dir  bool
}
