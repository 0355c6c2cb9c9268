package rooted

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// maxDepth is how many levels deep the remover descends, with an open descriptor for each level. It first moves deeper
	// directories to the top of the tree.
	maxDepth = 64
	// maxPasses is how often the remover reads and empties one directory, in which files keep appearing, before it gives
	// up.
	maxPasses = 50
	// maxTries is how often an open is repeated that failed because of a concurrent rename (EAGAIN) or a signal (EINTR).
	maxTries = 100
	// beneath are the flags of openat2 that keep a path below its directory: it follows no
	// symlink and crosses no mount.
	beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV
)

// openBeneath opens a path below a directory without following a symlink or
// entering a mount (EXDEV).
func openBeneath(dir int, name string, flags int) (int, error) {
	return openResolved(dir, name, flags, beneath)
}

// openResolved does the same as openBeneath, with the given resolve flags of openat2.
func openResolved(dir int, name string, flags int, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW), Resolve: resolve}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(dir, name, &how)
		if try == maxTries || !errors.Is(err, syscall.EINTR) && !errors.Is(err, syscall.EAGAIN) {
			return fd, err
		}
	}
}

// remover empties one tree. top is the tree's own directory, into which the remover moves directories that are too
// deep; moved counts the names that it has tried for them. err is the first error. The remover does not use Walk: a
// walk has limits and leaves the tree as it is, but a remover must get through any tree, gives itself the permissions
// for that, and reads each directory again until it is empty.
type remover struct {
	top   int
	moved int
	err   error
}

func removeTree(dir string) error {
	parent, err := unix.Open(filepath.Dir(dir), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(parent)
	return removeAt(parent, filepath.Base(dir))
}

// removeAt removes the directory name of an open directory.
func removeAt(parent int, name string) (err error) {
	r := &remover{}
	if r.top, err = openForRemoval(parent, name); err != nil {
		return told(name, err)
	}
	defer unix.Close(r.top)
	r.empty(r.top, 0)
	if r.err != nil {
		return r.err
	}
	if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err != nil {
		return told(name, err)
	}
	return nil
}

// openForRemoval opens a directory that is to be emptied. If the directory's owner lacks a permission for that, it
// gives the owner all permissions. The server must be the owner or root.
func openForRemoval(parent int, name string) (int, error) {
	fd, err := openBeneath(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if errors.Is(err, syscall.EACCES) {
		if err = unlock(parent, name); err == nil {
			fd, err = openBeneath(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
		}
	}
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err == nil && st.Mode&0o700 != 0o700 {
		// If Fchmod fails, the removals that need the permission return an error.
		_ = unix.Fchmod(fd, 0o700)
	}
	return fd, nil
}

// unlock makes an unreadable directory accessible to its owner, by descriptor.
func unlock(parent int, name string) error {
	fd, err := openBeneath(parent, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod(procPath(fd), 0o700)
}

// empty removes all entries of an open directory. It continues after a failure, and stores the
// first one.
func (r *remover) empty(dir, depth int) {
	for passes := 0; passes < maxPasses; passes++ {
		moved := r.moved
		n, failed := r.pass(dir, depth)
		if failed || n == 0 {
			return
		}
		if r.moved != moved {
			passes = 0 // The new entry at the top is a deep directory that was moved there, which is progress: nobody added a file.
		}
	}
	r.keep(busy(".", "files keep being added to it"))
}

// pass reads a directory once and removes the entries that it finds.
func (r *remover) pass(dir, depth int) (n int, failed bool) {
	// Open the directory a second time: a new descriptor reads from the beginning of the directory.
	fd, err := openBeneath(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		r.keep(told(".", err))
		return 0, true
	}
	list := os.NewFile(uintptr(fd), ".")
	defer list.Close()
	for {
		names, err := list.Readdirnames(256)
		for _, name := range names {
			n++
			if err := r.one(dir, name, depth); err != nil {
				r.keep(told(name, err))
				failed = true
			}
		}
		if err == io.EOF {
			return n, failed
		}
		if err != nil {
			r.keep(told(".", err))
			return n, true
		}
	}
}

// one removes one entry of a directory.
func (r *remover) one(dir int, name string, depth int) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || errors.Is(err, syscall.ENOENT) {
		return nil
	}
	if !errors.Is(err, syscall.EISDIR) && !errors.Is(err, syscall.EPERM) {
		return err
	}
	if depth >= maxDepth {
		return r.raise(dir, name)
	}
	fd, oerr := openForRemoval(dir, name)
	switch {
	case errors.Is(oerr, syscall.ENOENT):
		return nil
	case errors.Is(oerr, syscall.ENOTDIR) || errors.Is(oerr, syscall.ELOOP):
		return err // the entry is not a directory: return the error of the first unlink
	case oerr != nil:
		return oerr
	}
	r.empty(fd, depth+1)
	unix.Close(fd)
	err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}

// raise moves a directory that is too deep to the top of the tree, where the next pass finds it.
func (r *remover) raise(dir int, name string) error {
	for {
		r.moved++
		to := ".holdfast-raised-" + strconv.Itoa(r.moved)
		err := unix.Renameat2(dir, name, r.top, to, unix.RENAME_NOREPLACE)
		if errors.Is(err, syscall.EACCES) {
			// Moving a directory changes its "..", which requires write permission for it.
			if err = unlock(dir, name); err == nil {
				err = unix.Renameat2(dir, name, r.top, to, unix.RENAME_NOREPLACE)
			}
		}
		switch {
		case errors.Is(err, syscall.EEXIST):
		case errors.Is(err, syscall.ENOENT):
			return nil
		default:
			return err
		}
	}
}

func (r *remover) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}

// told adds the name of an entry that could not be removed to an error, and to some errors the cause.
func told(name string, err error) error {
	switch {
	case errors.Is(err, syscall.EXDEV) || errors.Is(err, syscall.EBUSY):
		return busy(name, "something is mounted there")
	case errors.Is(err, syscall.ENOTEMPTY):
		return busy(name, "files keep being added to it")
	}
	return &os.PathError{Op: "remove", Path: name, Err: err}
}
