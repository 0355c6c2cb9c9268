//go:build !linux

package paths

import (
	"strings"

	"golang.org/x/sys/unix"
)

// Way opens a file or directory as a base for other calls or for its metadata.
const Way = unix.O_RDONLY

// Other systems have no boxes, only the driver of tests, which does not isolate.

func openIn(root int, path string, flags int) (int, error) {
	return unix.Openat(root, "./"+strings.TrimLeft(path, "/"), flags, 0)
}

func openBelow(dir int, rel string, flags int) (int, error) {
	return unix.Openat(dir, rel, flags|unix.O_NOFOLLOW, 0)
}

// InProc reports whether an open file lies in a procfs.
func InProc(int) (bool, error) { return false, nil }

// Where cannot tell the path of an open file here: calls that need it are refused.
func Where(int) (string, error) { return "", unix.ENOSYS }

// Chmod changes the mode of an open file.
func Chmod(fd int, mode uint32) error { return unix.Fchmod(fd, mode) }
