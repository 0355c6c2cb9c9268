package boxproc

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// address returns a path to the same file that fits in a socket address: a long path is replaced
// by one through a descriptor of its directory (HZ-16). The caller calls done after use.
func address(path string) (addr string, done func(), err error) {
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	fd, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", fd, filepath.Base(path)), func() { _ = unix.Close(fd) }, nil
}
