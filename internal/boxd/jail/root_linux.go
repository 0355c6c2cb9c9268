package jail

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// root builds the box's root directory: a small tmpfs with mount points, symlinks and a few files that
// boxd writes. All other files of the box are mounted into it.
type root struct{ jail *wire.Jail }

// build makes the root directory with all its mounts. The error is busy if a file of the host was
// replaced or removed meanwhile.
func (r *root) build() error { return replaced(r.make()) }

func (r *root) make() error {
	// Mounts that are made in this namespace must not appear on the host.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make the mounts of the box private: %w", err)
	}
	// Open all sources first: the new root is mounted over a directory of the host and would hide everything below it.
	if err := r.openTrees(r.jail.Mounts); err != nil {
		return err
	}
	_ = unix.Umask(0)
	defer unix.Umask(0o022)
	if err := r.enterTmpfs(); err != nil {
		return err
	}
	for _, m := range r.jail.Mounts {
		if err := putMount(m); err != nil {
			return err
		}
	}
	return nil
}

// enter makes the working directory, which is the new root, the root directory of the process, and unmounts the old one.
func (r *root) enter() error {
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("cannot switch to the box's root (pivot_root): %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("cannot unmount the host's root: %w", err)
	}
	return unix.Chdir("/")
}

// seal makes the mount of the root directory read-only, and checks with a mkdir that it is.
func (r *root) seal() error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &attr); err != nil {
		return fmt.Errorf("cannot make the box's root read-only: %w", err)
	}
	if err := unix.Mkdir("/.probe", 0o700); !errors.Is(err, unix.EROFS) {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "the box's root is still writable (%v)", err)
	}
	return nil
}

// openTrees clones the mounts at all sources of the host, so that putMount only has to move the clones to their targets.
func (r *root) openTrees(mounts []wire.Mount) error {
	for i := range mounts {
		m := &mounts[i]
		if m.Source == "" {
			continue
		}
		fd, err := OpenTree(*m)
		if err != nil {
			return err
		}
		m.Source, m.TreeFD = "", fd
	}
	return nil
}

// OpenTree clones the mount at m.Source and, unless m.Flat is set, all mounts below it. On all of them it sets nosuid,
// nodev unless m.Dev is set, read-only if m.ReadOnly is set, and noexec if m.NoExec is set. Later mounts of the host do
// not appear in the clone.
func OpenTree(m wire.Mount) (int, error) {
	how := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE)
	if m.Flat {
		how &^= unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, m.Source, how)
	if err != nil {
		return -1, fmt.Errorf("cannot clone the mounts at %s (open_tree): %w", holdfast.Quote(m.Source), err)
	}
	if err := restrictTree(fd, m); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("cannot restrict the mounts of %s: %w", holdfast.Quote(m.Source), err)
	}
	return fd, nil
}

func restrictTree(tree int, m wire.Mount) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID, Propagation: unix.MS_PRIVATE}
	if !m.Dev {
		attr.Attr_set |= unix.MOUNT_ATTR_NODEV
	}
	if m.ReadOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if m.NoExec {
		attr.Attr_set |= unix.MOUNT_ATTR_NOEXEC
	}
	return unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr)
}

// enterTmpfs mounts a tmpfs, the new root, over a directory of the host and makes it the working
// directory. The mount is visible only in this mount namespace.
func (r *root) enterTmpfs() error {
	var err error
	for _, at := range []string{"/tmp", "/run", "/mnt", "/usr"} {
		if err = unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=4m,nr_inodes=4096"); err == nil {
			return unix.Chdir(at)
		}
	}
	return fmt.Errorf("cannot mount a tmpfs for the box's root: %w", err)
}

// putMount makes one entry of the new root, which is the working directory: a mount, a directory, a file or a symlink.
func putMount(m wire.Mount) error {
	rel, err := below(m.Target)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(path.Dir(rel), 0o755); err != nil {
		return fmt.Errorf("cannot make the parent directory of %s in the box's root: %w", m.Target, err)
	}
	switch {
	case m.Link != "":
		err = os.Symlink(m.Link, rel)
	case m.Content != "":
		err = os.WriteFile(rel, []byte(m.Content), 0o644)
	case m.Dir:
		err = os.MkdirAll(rel, 0o755)
	case m.FSType == "" && m.TreeFD > 0:
		if err = mountPoint(rel, m.File); err == nil {
			err = unix.MoveMount(m.TreeFD, "", unix.AT_FDCWD, rel, unix.MOVE_MOUNT_F_EMPTY_PATH)
			unix.Close(m.TreeFD)
		}
	case m.FSType != "":
		if err = mountPoint(rel, false); err == nil {
			err = unix.Mount(m.FSType, rel, m.FSType, flags(m), m.Data)
		}
	default:
		err = holdfast.Errorf(holdfast.KindInvalid, op, "the mount entry %s has neither a source nor a content", holdfast.Quote(m.Target))
	}
	if err != nil {
		return fmt.Errorf("cannot make the mount or file %s in the box's root: %w", m.Target, err)
	}
	return nil
}

func flags(m wire.Mount) uintptr {
	f := uintptr(unix.MS_NOSUID)
	if !m.Dev {
		f |= unix.MS_NODEV
	}
	if m.NoExec {
		f |= unix.MS_NOEXEC
	}
	if m.ReadOnly {
		f |= unix.MS_RDONLY
	}
	return f
}

func mountPoint(rel string, file bool) error {
	if !file {
		return os.MkdirAll(rel, 0o755)
	}
	f, err := os.OpenFile(rel, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		if _, serr := os.Lstat(rel); serr == nil {
			return nil
		}
		return err
	}
	return f.Close()
}

// below returns a mount target as a path relative to the new root. A target that is not absolute and clean is an error.
func below(target string) (string, error) {
	if !strings.HasPrefix(target, "/") || path.Clean(target) != target || target == "/" {
		return "", holdfast.Errorf(holdfast.KindInvalid, op, "the mount target %s is not an absolute, clean path below /", holdfast.Quote(target))
	}
	return target[1:], nil
}

// replaced turns an error that means that a file of the host was replaced or removed into a busy one:
// another start of the box can succeed.
func replaced(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENOTDIR) {
		return holdfast.Errorf(holdfast.KindBusy, op, "%w", err)
	}
	return err
}
