package jail

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Mend makes walls of a running box again that a process outside the box has removed: if a file is
// renamed to the path of a wall, the kernel removes the mount there. The calling thread must be in the
// mount namespace and the root of the box and be able to mount there. Mend makes it access files as the
// tools' user, because processes of the box run and could replace files during the work; the thread
// stays so and must not do other work afterwards. built lists the walls, parent directories first.
func Mend(built []wire.Wall, tool int) (err error) {
	if err := fileIdentity(tool); err != nil {
		return err
	}
	w := &walls{tool: -1}
	if w.root, err = unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	defer unix.Close(w.root)
	if w.masks, err = readMasks(w.root); err != nil {
		return err
	}
	for _, b := range built {
		if err := w.mend(b); err != nil {
			return err
		}
	}
	return nil
}

func (w *walls) mend(b wire.Wall) error {
	n := &node{path: b.Path, kind: b.Kind, dir: b.Dir, rule: b.Path}
	fd, err := w.at(b.Path)
	switch {
	case errors.Is(err, unix.ENOENT):
		switch err := w.placeholder(b.Path, b.Dir); {
		case errors.Is(err, unix.EEXIST) && again(w):
			return w.mend(b) // another box of the same workspace has just made a file there
		case err != nil:
			return err
		}
		if !b.Dir {
			n.kind = wire.WallAbsent
		}
	case err != nil:
		return err
	default:
		defer unix.Close(fd)
		stands, dir, err := w.stands(fd, n)
		if err != nil || stands {
			return err
		}
		n.dir = dir
		if n.kind == wire.WallAbsent {
			n.kind = wire.WallMasked // a process outside the box has made a file at the path: mask it
		}
	}
	if err := w.mount(n); err != nil {
		return err
	}
	return w.verify(n)
}

// stands reports whether a wall has its effect, and whether its path is a directory. fd is the open path.
func (w *walls) stands(fd int, n *node) (stands, dir bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, false, err
	}
	dir = st.Mode&unix.S_IFMT == unix.S_IFDIR
	for _, m := range w.masks {
		if st.Dev == m.Dev && st.Ino == m.Ino {
			return true, dir, nil
		}
	}
	switch n.kind {
	case wire.WallPin:
		var x unix.Statx_t
		err = unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &x)
		return x.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, dir, err
	case wire.WallReadOnly:
		var f unix.Statfs_t
		err = unix.Fstatfs(fd, &f)
		return f.Flags&unix.ST_RDONLY != 0, dir, err
	}
	return false, dir, nil
}
