//go:build !linux

package paths

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Way is the flag that opens a file or directory as a base for other calls or to read its metadata.
const Way = unix.O_RDONLY

// Systems other than Linux have no boxes, only the driver for tests, which does not isolate.

func openIn(root int, path string, flags int) (int, error) {
	return unix.Openat(root, "./"+strings.TrimLeft(path, "/"), flags, 0)
}

func openBelow(dir int, rel string, flags int) (int, error) {
	return unix.Openat(dir, rel, flags|unix.O_NOFOLLOW, 0)
}

// InProc always returns false: only Linux has the procfs that it looks for.
func InProc(int) (bool, error) { return false, nil }

// Where always fails here, so calls that need the path of an open file are refused.
func Where(int) (string, error) { return "", unix.ENOSYS }

// Chmod changes the mode of an open file.
func Chmod(fd int, mode uint32) error { return unix.Fchmod(fd, mode) }

// view is the root directory that a thread sees; only on Linux can a thread have one of its own.
type view struct {
	slash int
	below *os.Root
}

func seen() *view { return nil }
