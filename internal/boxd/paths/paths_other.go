//go:build !linux

package paths

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Way is the flag to open a file or directory as a base for other calls or to read its metadata. Other
// than on Linux, it needs the permission to read.
const Way = unix.O_RDONLY

// On systems other than Linux only the driver for tests (mem) uses this package. It does not isolate,
// so openIn need not keep paths below root.

func openIn(root int, path string, flags int) (int, error) {
	return unix.Openat(root, "./"+strings.TrimLeft(path, "/"), flags, 0)
}

func openBelow(dir int, rel string, flags int) (int, error) {
	return unix.Openat(dir, rel, flags|unix.O_NOFOLLOW, 0)
}

// InProc always returns false: only Linux has the procfs that it looks for.
func InProc(int) (bool, error) { return false, nil }

// Where always returns an error: on systems other than Linux, operations that need the path of an open file fail.
func Where(int) (string, error) { return "", unix.ENOSYS }

// Chmod changes the mode of an open file.
func Chmod(fd int, mode uint32) error { return unix.Fchmod(fd, mode) }

// view is the "/" that one thread sees. On systems other than Linux no thread has one, so it is not used.
type view struct {
	slash int
	below *os.Root
}

func seen() *view { return nil }
