package lifecycle

import (
	"io/fs"
	"os"
	"syscall"

	"github.com/holdfast-run/holdfast"
)

// othersMode are the permission bits of everybody except the owner.
const othersMode fs.FileMode = 0o077

// PrivateDir creates a directory that only this user can access, or uses an existing one. If an
// existing one is open to others it is closed to them, and was is its former mode (otherwise 0). A
// directory of another user is denied: its owner could replace the server's files.
func PrivateDir(path string) (was fs.FileMode, err error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return 0, holdfast.Errorf(holdfast.KindUnavailable, "serve", "the data directory cannot be made or opened: %w", err).
			WithHint("choose another data directory with --data DIR")
	}
	// Check and change the directory through its descriptor: its name could be given to another
	// file meanwhile.
	d, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return 0, holdfast.Errorf(holdfast.KindUnavailable, "serve", "the data directory cannot be made or opened: %w", err).
			WithHint("choose another data directory with --data DIR")
	}
	defer d.Close()
	info, err := d.Stat()
	if err != nil {
		return 0, holdfast.Errorf(holdfast.KindUnavailable, "serve", "the data directory cannot be made or opened: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return 0, holdfast.Errorf(holdfast.KindDenied, "serve", "the data directory %s belongs to another user", holdfast.Quote(path)).
			WithHint("let the server make a data directory of its own: holdfast serve --data %s/holdfast; or: chown %d %s", path, os.Geteuid(), path)
	}
	was = info.Mode().Perm()
	if was&othersMode == 0 {
		return 0, nil
	}
	err = d.Chmod(was &^ othersMode)
	if err == nil {
		// Some file systems accept a mode but keep another.
		info, err = d.Stat()
	}
	if err != nil || info.Mode().Perm()&othersMode != 0 {
		return 0, holdfast.Errorf(holdfast.KindDenied, "serve", "the data directory %s has mode %#o, and access for other users cannot be taken away", holdfast.Quote(path), was).
			WithHint("chmod 700 %s, or choose a directory on another file system with --data DIR", path)
	}
	return was, nil
}
