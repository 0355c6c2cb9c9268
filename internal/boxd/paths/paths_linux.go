package paths

import (
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Way is the flag to open a file or directory without the permission to read it. The descriptor only
// serves as a base for other calls and to read metadata.
const Way = unix.O_PATH

func openIn(root int, path string, flags int) (int, error) {
	return unix.Openat2(root, path, &unix.OpenHow{
		Flags: uint64(flags), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

func openBelow(dir int, rel string, flags int) (int, error) {
	return unix.Openat2(dir, rel, &unix.OpenHow{
		Flags: uint64(flags), Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// InProc reports whether an open file lies in a procfs.
func InProc(fd int) (bool, error) {
	var st unix.Statfs_t
	err := unix.Fstatfs(fd, &st)
	return st.Type == unix.PROC_SUPER_MAGIC, err
}

// descriptors opens the directory /proc/self/fd, which has a link for each open file of boxd, once.
var descriptors = sync.OnceValues(func() (int, error) {
	return unix.Open("/proc/self/fd", Way|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
})

// Chmod changes the mode of an open file, also of one opened with Way.
func Chmod(fd int, mode uint32) error {
	dir, err := descriptors()
	if err != nil {
		return err
	}
	return unix.Fchmodat(dir, strconv.Itoa(fd), mode, 0)
}

// Where returns the path of an open file, without symlinks, as the calling thread sees it. The path of
// a file that was removed ends with " (deleted)". The error is EXDEV if the thread cannot see the file.
func Where(fd int) (string, error) {
	dir, err := descriptors()
	if err != nil {
		return "", err
	}
	for size := 512; ; size *= 2 {
		buf := make([]byte, size)
		n, err := unix.Readlinkat(dir, strconv.Itoa(fd), buf)
		switch {
		case err != nil:
			return "", err
		case n == size && size < 1<<16:
			continue
		case !strings.HasPrefix(string(buf[:n]), "/"):
			return "", unix.EXDEV
		}
		return string(buf[:n]), nil
	}
}
