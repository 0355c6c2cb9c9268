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

// root builds the box's root directory: a small tmpfs with mount points, symlinks and a few
// generated files; all other files are mounted into it.
type root struct{ jail *wire.Jail }

// build makes the whole root. If a file of the host was replaced while it was mounted, the error
// has kind busy.
func (r *root) build() error { return replaced(r.make()) }

func (r *root) make() error {
	// Nothing that is mounted here may propagate back to the host.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make the mounts of the box private: %w", err)
	}
	// Open all sources first: the new root is mounted over a directory of the host and would hide
	// everything below it.
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

// enter makes the new root, which is the working directory, the only root of the process.
func (r *root) enter() error {
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("cannot switch to the box's root (pivot_root): %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("cannot unmount the host's root: %w", err)
	}
	return unix.Chdir("/")
}

// seal makes the root read-only and checks that it is.
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

// openTrees clones all mount sources, so that later the clones only have to be moved to their targets.
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

// OpenTree clones the mounts at a source path, or with m.Flat only the upper one, and sets the mount's attributes on
// the clone and all below it: nosuid always, nodev unless m.Dev, and read-only and noexec as asked. What the host mounts
// there later does not appear in the clone.
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

// enterTmpfs mounts the new root over some directory of the host, visible in this mount namespace
// only, and makes it the working directory.
func (r *root) enterTmpfs() error {
	var err error
	for _, at := range []string{"/tmp", "/run", "/mnt", "/usr"} {
		if err = unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=4m,nr_inodes=4096"); err == nil {
			return unix.Chdir(at)
		}
	}
	return fmt.Errorf("cannot mount a tmpfs for the box's root: %w", err)
}

// putMount makes one entry below the new root, which is the working directory.
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

// below turns an absolute, clean target into a path relative to the new root.
func below(target string) (string, error) {
	if !strings.HasPrefix(target, "/") || path.Clean(target) != target || target == "/" {
		return "", holdfast.Errorf(holdfast.KindInvalid, op, "the mount target %s is not an absolute, clean path below /", holdfast.Quote(target))
	}
	return target[1:], nil
}

// replaced gives an error the kind busy if a file of the host was replaced while its mount was
// made: the next start of the box uses the new file.
func replaced(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENOTDIR) {
		return holdfast.Errorf(holdfast.KindBusy, op, "%w", err)
	}
	return err
}
