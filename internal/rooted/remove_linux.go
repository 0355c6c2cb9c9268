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
	// maxDepth is how deep the remover goes, a descriptor for each level; what
	// lies deeper is moved up to the top first.
	maxDepth = 64
	// maxPasses is how often a directory is read that does not become empty.
	maxPasses = 50
	// maxTries is how often an open is repeated that a rename got in the way of.
	maxTries = 100
	// beneath are the flags with which a path stays below its directory: it follows no
	// symlink and crosses no mount.
	beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV
)

// openBeneath opens a path below a directory without following a symlink or
// entering a mount (EXDEV).
func openBeneath(dir int, name string, flags int) (int, error) {
	return openResolved(dir, name, flags, beneath)
}

// openResolved is openBeneath with other flags for the path.
func openResolved(dir int, name string, flags int, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW), Resolve: resolve}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(dir, name, &how)
		if try == maxTries || !errors.Is(err, syscall.EINTR) && !errors.Is(err, syscall.EAGAIN) {
			return fd, err
		}
	}
}

// remover empties one tree. top is the tree's own directory, where what lies too
// deep is moved to. It is no Walk: a walk has bounds and leaves the tree as it is, while a
// remover has to get through any tree, gives itself the rights for that and reads a
// directory until it is empty.
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
	name := filepath.Base(dir)
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

// openForRemoval opens a directory to be emptied, giving its owner (who we are,
// or who cannot refuse us) the rights that takes.
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
		// When this fails the removals that need it say why.
		_ = unix.Fchmod(fd, 0o700)
	}
	return fd, nil
}

// unlock makes an unreadable directory readable, by descriptor.
func unlock(parent int, name string) error {
	fd, err := openBeneath(parent, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0o700)
}

// empty removes all entries of an open directory. The first failure is kept and
// the rest goes on.
func (r *remover) empty(dir, depth int) {
	for passes := 0; passes < maxPasses; passes++ {
		moved := r.moved
		n, failed := r.pass(dir, depth)
		if failed || n == 0 {
			return
		}
		if r.moved != moved {
			passes = 0 // what was moved to the top is progress, not an intruder
		}
	}
	r.keep(busy(".", "files are added while it is removed"))
}

// pass removes what one reading of a directory shows.
func (r *remover) pass(dir, depth int) (n int, failed bool) {
	// A directory of its own description: reading starts at the beginning.
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
		return err // no directory: the first refusal counts
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

// raise moves a directory that lies too deep to the top of the tree, whose next
// pass finds it.
func (r *remover) raise(dir int, name string) error {
	for {
		r.moved++
		to := ".holdfast-raised-" + strconv.Itoa(r.moved)
		err := unix.Renameat2(dir, name, r.top, to, unix.RENAME_NOREPLACE)
		if errors.Is(err, syscall.EACCES) {
			// Moving a directory changes its "..": that wants write access to it.
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

// told names the entry that could not be removed.
func told(name string, err error) error {
	switch {
	case errors.Is(err, syscall.EXDEV) || errors.Is(err, syscall.EBUSY):
		return busy(name, "a mount is there")
	case errors.Is(err, syscall.ENOTEMPTY):
		return busy(name, "files are added while it is removed")
	}
	return &os.PathError{Op: "remove", Path: name, Err: err}
}
