package workspaces

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// directory is what look found out about a directory of the user's own.
type directory struct {
	path          string
	device, inode uint64
	uid, gid      uint32
}

// readOnly is ST_RDONLY of Linux and MNT_RDONLY of macOS.
const readOnly = 1

// look examines a directory that a user lends to sessions. It fails with invalid or denied if the directory cannot be
// lent, and with not_found if it does not exist.
func (c Config) look(path string) (directory, error) {
	var d directory
	if !filepath.IsAbs(path) {
		return d, refused(path, "is not an absolute path").WithHint("name the directory with its absolute path")
	}
	// Symlinks above the directory are resolved once, here: the stored path contains none.
	above, err := filepath.EvalSymlinks(filepath.Dir(filepath.Clean(path)))
	if err != nil {
		return d, missing(path, err)
	}
	d.path = filepath.Join(above, filepath.Base(filepath.Clean(path)))
	st, err := lstat(d.path)
	if err != nil {
		return d, missing(path, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
	case unix.S_IFLNK:
		return d, refused(path, "is a symlink").WithHint("name the directory that the symlink leads to")
	default:
		return d, refused(path, "is not a directory").WithHint("name the directory that contains it: %s", filepath.Dir(d.path))
	}
	//nolint:unconvert // the type differs between systems
	d.device, d.inode, d.uid, d.gid = uint64(st.Dev), st.Ino, st.Uid, st.Gid
	return d, c.lendable(d)
}

func missing(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return holdfast.Errorf(holdfast.KindNotFound, "workspace", "there is no directory %s", holdfast.Quote(path)).
			WithHint("name a directory that exists on the server's machine")
	}
	return holdfast.Errorf(holdfast.KindInvalid, "workspace", "the directory %s cannot be examined: %w", holdfast.Quote(path), err)
}

func refused(path, why string) *holdfast.Error {
	return holdfast.Errorf(holdfast.KindInvalid, "workspace", "the path %s cannot be a workspace: it %s", holdfast.Quote(path), why)
}

// lendable returns an error if sessions must not or cannot work in a directory.
func (c Config) lendable(d directory) error {
	data, err := filepath.EvalSymlinks(c.Data)
	if err != nil {
		return holdfast.Errorf(holdfast.KindInternal, "workspace", "the data directory of this server cannot be examined: %w", err)
	}
	home, err := homeIn(d.path)
	switch {
	case err != nil:
		return holdfast.Errorf(holdfast.KindInternal, "workspace", "the home directories of this machine's users cannot be read: %w", err)
	case d.path == "/":
		return refused(d.path, "is the root of the file system").WithHint("name the directory of a project")
	case home != "":
		return refused(d.path, "is or contains the home directory "+holdfast.Quote(home)+", with keys and settings of its user").WithHint("name the directory of a project")
	case within(d.path, data), within(data, d.path):
		return refused(d.path, "is, or contains, or lies in the data directory of this server, "+data).WithHint("name a directory elsewhere, or move the data directory: holdfast serve --data DIR")
	}
	if self := os.Getuid(); self != 0 && int(d.uid) != self {
		return holdfast.Errorf(holdfast.KindDenied, "workspace", "the directory %s belongs to uid %d, but the server runs as uid %d", holdfast.Quote(d.path), d.uid, self).
			WithHint("run the server as the directory's owner")
	} else if self == 0 && d.uid == 0 && !c.RootTrees {
		return ofRoot(d.path)
	}
	if err := unix.Access(d.path, unix.W_OK|unix.X_OK); err != nil {
		return refused(d.path, "is read-only: "+err.Error()).WithHint("chmod u+rwx %s", d.path)
	}
	var sys unix.Statfs_t
	if err := unix.Statfs(d.path, &sys); err == nil && sys.Flags&readOnly != 0 {
		return refused(d.path, "is on a file system that is mounted read-only")
	}
	return nil
}

// ofRoot returns the error that refuses a directory which belongs to root.
func ofRoot(dir string) error {
	return holdfast.Errorf(holdfast.KindDenied, "workspace", "the directory %s belongs to root, and an agent could write programs into it that root runs later", holdfast.Quote(dir)).
		WithHint("give the directory to another user: chown -R USER %s; or allow directories of root: holdfast serve --set allow_root_trees=true (docs/workspaces.md says what that means)", dir)
}

// within reports whether path is dir or lies below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// homeIn looks for home directories of this machine's users at or below dir, whatever symlinks or mounts lead to them. It
// returns the first one, or "" if dir contains none.
func homeIn(dir string) (string, error) {
	list, err := homes()
	for _, home := range list {
		real, err := filepath.EvalSymlinks(home)
		if err != nil {
			real = home
		}
		if in, _ := lies(real, dir); in || within(real, dir) {
			return home, nil
		}
	}
	return "", err
}

// homes returns the home directories of the users of this machine, the server's user first. After an error it returns
// those that it knows.
func homes() (list []string, err error) {
	if home, err := os.UserHomeDir(); err == nil {
		list = append(list, filepath.Clean(home))
	}
	f, err := os.Open("/etc/passwd")
	if errors.Is(err, fs.ErrNotExist) {
		return list, nil // a machine without /etc/passwd has no other users
	}
	if err != nil {
		return list, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Split(lines.Text(), ":"); len(fields) > 5 && filepath.IsAbs(fields[5]) {
			list = append(list, filepath.Clean(fields[5]))
		}
	}
	return list, lines.Err()
}

// same fails with conflict if the path of the workspace's directory leads to another directory now, or to none.
func same(r Record) error {
	st, err := lstat(r.Dir)
	if err != nil {
		return another(r, err.Error(), "put the directory back")
	}
	//nolint:unconvert // the type differs between systems
	return sameAs(r, st.Mode&unix.S_IFMT == unix.S_IFDIR, uint64(st.Ino), st.Uid)
}

// sameAs fails with conflict unless the given facts are those of the workspace's directory: it is a directory, and its
// inode and owner are the stored ones.
func sameAs(r Record, isDir bool, inode uint64, uid uint32) error {
	switch {
	case isDir && inode == r.Inode && uid == r.UID:
		// The number of a device may be another one after each start of the machine.
		return nil
	case isDir && inode == r.Inode:
		return another(r, fmt.Sprintf("it belonged to uid %d, and belongs to uid %d now", r.UID, uid), fmt.Sprintf("chown %d:%d %s", r.UID, r.GID, r.Dir))
	}
	return another(r, "another one is there now", "put the directory back")
}

// another returns the error for a workspace whose directory is not the stored one; mend is a hint how the user can
// restore it.
func another(r Record, what, mend string) error {
	return holdfast.Errorf(holdfast.KindConflict, "workspace", "the directory %s of workspace %s is not as it was when the workspace was made: %s", holdfast.Quote(r.Dir), r.ID, what).
		WithHint("%s; nothing in the directory was changed. Or delete the workspace, so that its sessions get files of their own: holdfast workspace delete %s", mend, r.ID)
}

func lstat(path string) (unix.Stat_t, error) {
	var st unix.Stat_t
	for {
		err := unix.Lstat(path, &st)
		if !errors.Is(err, syscall.EINTR) {
			return st, err
		}
	}
}
