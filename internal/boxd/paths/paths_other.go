//go:build !linux

package paths

import (
	"strings"

	"golang.org/x/sys/unix"
)

// Way opens something to go on from or to look at.
const Way = unix.O_RDONLY

// Elsewhere there are no boxes, only the driver of tests, which does not isolate.

func openIn(root int, path string, flags int) (int, error) {
	return unix.Openat(root, "./"+strings.TrimLeft(path, "/"), flags, 0)
}

func openBelow(dir int, rel string, flags int) (int, error) {
	return unix.Openat(dir, rel, flags|unix.O_NOFOLLOW, 0)
}

// InProc reports whether an open file lies in a procfs.
func InProc(int) (bool, error) { return false, nil }

// Where is the path of an open file. What depends on it is refused.
func Where(int) (string, error) { return "", unix.ENOSYS }

// Chmod changes the mode of an open file.
func Chmod(fd int, mode uint32) error { return unix.Fchmod(fd, mode) }
