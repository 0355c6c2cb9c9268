package boxproc

import (
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// Owned makes sure that dir is a directory owned by uid. If dir is missing, it is made (0700). If dir belongs
// to another user, its owner becomes uid if private is set (only the session uses dir); otherwise Owned returns
// an error. root is true if the server runs as root. If it is false, Owned does not look at the owner: an ordinary
// user's server cannot change it, and its boxes run as that user.
func Owned(dir string, uid, gid uint32, private, root bool) error {
	const op = "boxproc.own"
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot make a directory of the box: %w", err)
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "the path %s cannot be opened as a directory of the box: %w", holdfast.Quote(dir), err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot read the owner of the directory %s: %w", holdfast.Quote(dir), err)
	}
	if !root || st.Uid == uid && (st.Gid == gid || !private) {
		return nil
	}
	if !private {
		hint := "chown -R " + strconv.Itoa(int(uid)) + " " + dir
		if st.Uid == 0 {
			hint = "give the directory to a user that is not root: " + hint
		}
		return holdfast.Errorf(holdfast.KindInvalid, op, "the directory %s belongs to uid %d, but the box's tools have uid %d", holdfast.Quote(dir), st.Uid, uid).WithHint("%s", hint)
	}
	if err := unix.Fchown(fd, int(uid), int(gid)); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot change the owner of the directory %s: %w", holdfast.Quote(dir), err)
	}
	return nil
}
