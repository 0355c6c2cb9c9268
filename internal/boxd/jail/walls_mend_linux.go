package jail

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Mend restores walls of a running box that a process outside the box removed: a rename over a
// path removes the mount there. The calling thread is in the box's mount namespace, with its
// root, and may mount there; it cannot be used for anything else afterwards. It accesses files as
// the tools' user, because processes of the box are running and could exchange the files that it
// changes. built lists the walls in the order in which they were built, parents first.
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
		if err := w.placeholder(b.Path, b.Dir); err != nil {
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
			n.kind = wire.WallMasked // a file has appeared at the path: mask it
		}
	}
	if err := w.mount(n); err != nil {
		return err
	}
	return w.verify(n)
}

// stands reports whether a wall's mount is still at its path, and whether the path is a directory.
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
