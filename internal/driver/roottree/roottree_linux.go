package roottree

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/sandbox"
)

const op = "driver.roottree"

// elsewhere is the end of hints for a directory of root that cannot be used in a box.
const elsewhere = "; or give the directory to another user: chown -R USER DIR"

// maxEntries is the most entries that a directory may have below it, because all are searched for set-uid files.
const maxEntries = 5_000_000

// Open returns a detached mount of a directory of root of the host, nosuid and nodev. In the mount root's files are
// those of another user; on the disk they stay root's (an idmapped mount), and no process gets an id of root for it.
// Mounts in the directory are left out. users returns the user namespace that maps root, and the directory's group, to
// that user.
//
// Errors: conflict if the directory is not the one that want describes; denied if it has programs that give other users
// root's rights; unavailable if it cannot be searched for such programs, or be mounted like this.
func Open(ctx context.Context, dir string, want sandbox.RootTree, users func() (*os.File, error)) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot mount the host's directory %s in the box: %w", holdfast.Quote(dir), err)
	}
	tree := os.NewFile(uintptr(fd), dir)
	err = same(tree, want)
	if err == nil {
		err = harmless(ctx, dir, want.Inode)
	}
	if err == nil {
		err = idmap(tree, users)
	}
	if err != nil {
		_ = tree.Close()
		return nil, err
	}
	return tree, nil
}

// same returns an error if tree is not the directory that want describes. A user who may rename a directory on the
// path could otherwise put any other directory of root in its place.
func same(tree *os.File, want sandbox.RootTree) error {
	var st unix.Stat_t
	err := unix.Fstat(int(tree.Fd()), &st)
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Ino != want.Inode || st.Uid != 0 || st.Gid != want.GID) {
		err = errors.New("the path leads to another directory now, or the directory has another owner")
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindConflict, op, "the directory %s or its owner is not the one that was recorded: %w", holdfast.Quote(tree.Name()), err).
			WithHint("put the recorded directory and owner back; holdfast changed nothing in it")
	}
	return nil
}

// harmless returns an error if a directory has programs that give other users root's rights (set-uid, set-gid,
// capabilities). A tool could write its own code into such a program through a mapping (mmap), which leaves
// these rights as they are; every other write takes them away.
func harmless(ctx context.Context, dir string, inode uint64) error {
	unsure := func(err error) error {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "the directory %s, which belongs to root, cannot be searched for set-uid files: %w", holdfast.Quote(dir), err).
			WithHint("unmount what is mounted in the directory, or remove the files that cannot be read%s", elsewhere)
	}
	for e, err := range rooted.Walk(ctx, dir, rooted.Bounds{Entries: maxEntries, Depth: 10_000, Unordered: true}) {
		if err == nil && e.Depth == 0 && e.Ino != inode {
			err = errors.New("the path leads to another directory than before")
		}
		if err != nil {
			return unsure(err)
		}
		if !e.Mode.IsRegular() {
			continue
		}
		bits := e.Mode&(fs.ModeSetuid|fs.ModeSetgid) != 0
		if !bits {
			if bits, err = e.Privileged(); err != nil {
				return unsure(err)
			}
		}
		if bits {
			at := filepath.Join(dir, e.Path())
			return holdfast.Errorf(holdfast.KindDenied, op, "the file %s is set-uid, set-gid or has capabilities: an agent could put its own program into it, and other users would run that as root", holdfast.Quote(at)).
				WithHint("chmod ug-s %s; setcap -r %s; or keep such files outside of the directory", at, at)
		}
	}
	return nil
}

// idmap maps root, and the group of the tree, to the tools' user and group in a detached mount.
func idmap(tree *os.File, users func() (*os.File, error)) error {
	space, err := users()
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot make a user namespace for the directory %s, which belongs to root: %w", holdfast.Quote(tree.Name()), err)
	}
	defer space.Close()
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(space.Fd())}
	if err := unix.MountSetattr(int(tree.Fd()), "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "the file system of %s cannot show root's files as those of another user (idmapped mount): %w", holdfast.Quote(tree.Name()), err).
			WithHint("move the directory to ext4, xfs or btrfs, with kernel 5.15 or later, on a server that is root of the machine and not of a container%s", elsewhere)
	}
	return nil
}
