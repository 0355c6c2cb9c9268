package rooted

import "time"

// Handle is an open file or directory of a tree. Its methods reach exactly that file, wherever it is moved
// meanwhile. The caller closes it.
type Handle struct {
	fd int
	// path says that the descriptor was opened with O_PATH. borrowed says that Close must not close it: it belongs to a
	// walk or to another Handle.
	path, borrowed bool
}

// Xattr is an extended attribute. Name begins with "user.": other namespaces are neither read nor written.
type Xattr struct{ Name, Value string }

// maxXattrs is how many bytes of names and values of extended attributes one file may have.
const maxXattrs = 128 << 10

// Attr are the attributes that a restored file or directory gets.
type Attr struct {
	// Mode holds the permission bits and set-uid 04000, set-gid 02000, sticky 01000.
	Mode     uint32
	UID, GID int
	// Mtime is in nanoseconds since 1970.
	Mtime  int64
	Xattrs []Xattr
}

// Open opens the file or directory that a walk has just returned, for reading, in exactly the directory in
// which the walk found it, and returns its stat from the descriptor. It opens regular files and directories
// only. If the owner may not read the file, Open adds the permission for the moment of opening. It may be
// called only before the walk continues. A directory's handle is valid until then.
func (e Entry) Open() (Handle, Entry, error) {
	h, now, err := e.w.handle(e)
	return h, now, fail("file.open", err)
}

// Readlink returns the target of the symlink that a walk has just returned. As Open it may be called only before the
// walk continues.
func (e Entry) Readlink() (string, error) {
	target, err := e.w.readlink(e)
	return target, fail("file.readlink", err)
}

// Privileged reports whether the file that a walk has just returned has capabilities. As Open it may be called only
// before the walk continues. Bits that make the file set-uid or set-gid are in its Mode.
func (e Entry) Privileged() (bool, error) {
	yes, err := e.w.privileged(e)
	return yes, fail("file.capabilities", err)
}

// Touch changes a file of the server's own, which it makes if necessary, and returns the time at which the file
// system says that this happened.
func Touch(file string) (time.Time, error) {
	now, err := touch(file)
	return now, fail("clock.touch", err)
}

// Dir is an open directory of a tree, in which entries are made, replaced and removed by their names. No
// method follows a symlink or enters a mount. Names must be single elements of a path.
type Dir struct{ Handle }

// OpenTree opens the top directory of a tree.
func OpenTree(dir string) (Dir, error) {
	const op = "tree.open"
	dir, err := absolute(op, dir)
	if err != nil {
		return Dir{}, err
	}
	d, err := openTree(dir)
	return d, fail(op, err)
}

// MakeTree makes the top directory of a new tree, which only the server can reach until it gets other
// attributes; conflict if it exists.
func MakeTree(dir string) (Dir, error) {
	const op = "tree.make"
	dir, err := absolute(op, dir)
	if err != nil {
		return Dir{}, err
	}
	d, err := makeTree(dir)
	return d, fail(op, err)
}
