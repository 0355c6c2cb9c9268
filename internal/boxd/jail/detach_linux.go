package jail

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// detach cuts off from the host two open directories of boxd, which lie on the host: the state directory and the work
// leaf of cgroup v2. boxd cannot close them, because it creates files in the first and child processes in the second
// all its life. The descriptor of each becomes that of a detached mount, so that ".." in the directory leads to the
// directory itself and no file in it can be executed.
func (e *entry) detach() error {
	for what, fd := range map[string]int{"state directory": e.cfg.StateFD, "work leaf": e.jail.WorkCgroup} {
		if fd <= 0 {
			continue
		}
		if err := detachDir(fd); err != nil {
			return fmt.Errorf("cannot detach the box's %s from the host: %w", what, err)
		}
		top, err := isTop(fd)
		if err != nil {
			return fmt.Errorf("cannot check that the box's %s is detached from the host: %w", what, err)
		}
		if !top {
			return holdfast.Errorf(holdfast.KindUnavailable, op, "the box's %s still leads to the host's files by \"..\"", what)
		}
	}
	return nil
}

// detachDir replaces the open directory fd by a detached mount of the same directory. It does nothing if the server
// has done so already, as a server that runs as root does: the ids of its boxd may not reach the directory by a path.
func detachDir(fd int) error {
	if top, err := isTop(fd); top || err != nil {
		return err
	}
	path := make([]byte, 4097)
	n, err := unix.Readlink("/proc/self/fd/"+strconv.Itoa(fd), path)
	if err != nil {
		return err
	}
	tree, err := Detached(unix.AT_FDCWD, string(path[:n]))
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := same(tree, fd); err != nil {
		return err
	}
	return unix.Dup3(tree, fd, unix.O_CLOEXEC)
}

// Detached returns the descriptor of a detached mount of a directory. The mount has the options
// nosuid, nodev and noexec. If path is empty, dir is the directory.
func Detached(dir int, path string) (int, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_SYMLINK_NOFOLLOW)
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	tree, err := unix.OpenTree(dir, path, flags)
	if err != nil {
		return -1, fmt.Errorf("cannot clone the mount of a directory (open_tree): %w", err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		_ = unix.Close(tree)
		return -1, fmt.Errorf("cannot set nosuid, nodev and noexec on boxd's own mount of a directory (mount_setattr): %w", err)
	}
	return tree, nil
}

// isTop reports whether ".." in the open directory fd leads to the directory itself, as in a detached mount.
func isTop(fd int) (bool, error) {
	var here, above unix.Stat_t
	if err := unix.Fstat(fd, &here); err != nil {
		return false, err
	}
	if err := unix.Fstatat(fd, "..", &above, 0); err != nil {
		return false, err
	}
	return here.Dev == above.Dev && here.Ino == above.Ino, nil
}

func same(a, b int) error {
	var x, y unix.Stat_t
	if err := unix.Fstat(a, &x); err != nil {
		return err
	}
	if err := unix.Fstat(b, &y); err != nil {
		return err
	}
	if x.Dev != y.Dev || x.Ino != y.Ino {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "a directory of the box was replaced while boxd detached it from the host")
	}
	return nil
}
