package rooted

import (
	"context"
	"time"
)

// Handle is an open file or directory of a tree. Its methods reach exactly that file, wherever it is moved
// meanwhile. The caller closes it.
type Handle struct {
	fd int
	// path says that the descriptor was opened with O_PATH. borrowed says that the descriptor belongs to a walk or to
	// another Handle, so that Close must not close it.
	path, borrowed bool
}

// Xattr is an extended attribute. Name begins with "user.": extended attributes of other namespaces are neither read
// nor written.
type Xattr struct{ Name, Value string }

// maxXattrs is how many bytes the names and values of the extended attributes of one file may have together.
const maxXattrs = 128 << 10

// Attr are the attributes that a new or restored file, directory or symlink gets. A symlink gets only UID, GID and
// Mtime.
type Attr struct {
	// Mode holds the permission bits and set-uid 04000, set-gid 02000, sticky 01000.
	Mode     uint32
	UID, GID int
	// Mtime is in nanoseconds since 1970.
	Mtime  int64
	Xattrs []Xattr
}

// Open opens the regular file or the directory that a walk has just returned, for reading, in exactly the directory in
// which the walk found it. Since somebody may have replaced the file, Open also returns the stat of the file that it
// opened. If the server is refused the file (EACCES), Open gives its owner the permission to read it for the moment of
// opening, unless Bounds.Untouched is set. Open may be called only before the walk continues; the handle of a directory
// is valid until the walk continues.
func (e Entry) Open() (Handle, Entry, error) {
	h, now, err := e.w.handle(e)
	return h, now, fail("file.open", err)
}

// Readlink returns the target of the symlink that a walk has just returned. It may be called only before the walk
// continues.
func (e Entry) Readlink() (string, error) {
	target, err := e.w.readlink(e)
	return target, fail("file.readlink", err)
}

// Privileged reports whether the file that a walk has just returned has file capabilities (security.capability). It may
// be called only before the walk continues. It does not look at the set-uid and set-gid bits: Entry.Mode has them.
func (e Entry) Privileged() (bool, error) {
	yes, err := e.w.privileged(e)
	return yes, fail("file.capabilities", err)
}

// mostAll bounds the walk of Entry.All, which a caller may begin at each directory of a tree.
var mostAll = Bounds{Entries: 1000, Depth: 16}

// All reports whether is returns true for the entry that a walk has just returned and, if the entry is a directory, for
// everything below it. The paths of entries that is gets begin at this directory. All may be called only before the walk
// continues. It returns false if a directory is too large for the limits of mostAll, has a mount in it, or cannot be
// read.
func (e Entry) All(ctx context.Context, is func(Entry) bool) bool {
	return is(e) && (!e.Mode.IsDir() || e.w.all(ctx, is))
}

// Touch sets the times of a file of the server's own to now, and makes the file if it does not exist. It returns the
// file's new ctime, which is the present time by the clock of the file system.
func Touch(file string) (time.Time, error) {
	now, err := touch(file)
	return now, fail("clock.touch", err)
}

// Dir is an open directory of a tree, in which entries are made, replaced and removed by their names. No method follows
// a symlink, and none changes or lists what is below a mount. Each name, but not the path of Below, must be a single
// element of a path.
type Dir struct{ Handle }

// OpenTree opens the top directory of a tree; conflict if something else is at the path.
func OpenTree(dir string) (Dir, error) {
	const op = "tree.open"
	dir, err := absolute(op, dir)
	if err != nil {
		return Dir{}, err
	}
	d, err := openTree(dir)
	return d, fail(op, err)
}

// MakeTree makes the top directory of a new tree with the mode 0700; conflict if the path exists.
func MakeTree(dir string) (Dir, error) {
	const op = "tree.make"
	dir, err := absolute(op, dir)
	if err != nil {
		return Dir{}, err
	}
	d, err := makeTree(dir)
	return d, fail(op, err)
}
