// Package paths opens the target of a path without ever leaving the box.
//
// It owns the one way in which boxd resolves a path on which an agent may have put symlinks. boxd and
// its packages files and jail import it; it imports only the standard library and golang.org/x/sys.
// Invariant (I-19): every path is resolved below the box's "/" and through no magic link of /proc,
// so that no link can lead to a descriptor of boxd or out of the box. On a Linux kernel without
// openat2, Open and Below return an error for every path.
package paths

import (
	"cmp"
	"errors"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// maxTries is how often a path is resolved, if files are renamed during each try. A process that
// renames files all the time must not block a call for ever.
const maxTries = 1000

// slash opens the "/" of the box, once: boxd enters the root of the box before it resolves a path. A
// thread that has called Enter uses a "/" of its own instead.
var slash = sync.OnceValues(func() (int, error) {
	return unix.Open("/", Way|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
})

// Open opens the target of an absolute path. The caller closes the descriptor. The error is ELOOP if
// the path leads through too many symlinks or through a magic link such as /proc/1/fd/3. It is EBUSY
// if files are renamed during each try.
func Open(path string, flags int) (int, error) {
	if v := seen(); v != nil {
		return OpenIn(v.slash, path, flags)
	}
	root, err := slash()
	if err != nil {
		return -1, err
	}
	return OpenIn(root, path, flags)
}

// OpenIn does the same as Open, but resolves the path in the open directory root instead of "/".
func OpenIn(root int, path string, flags int) (int, error) {
	return again(func() (int, error) { return openIn(root, path, flags|unix.O_CLOEXEC) })
}

// Below opens a path below an open directory. It returns an error if the path leads through a symlink or out of dir.
func Below(dir int, rel string, flags int) (int, error) {
	return again(func() (int, error) { return openBelow(dir, rel, flags|unix.O_CLOEXEC) })
}

// At opens a name in an open directory. If the name is a symlink, it does not follow it.
func At(dir int, name string, flags int, perm uint32) (int, error) {
	return again(func() (int, error) {
		return unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
	})
}

func again(open func() (int, error)) (int, error) {
	for range maxTries {
		fd, err := open()
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
	return -1, unix.EBUSY
}

// IsDir returns nil if path leads to a directory, and otherwise the error of opening it as one.
func IsDir(path string) error {
	fd, err := Open(path, Way|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// IsProgram reports whether path leads to a regular file that its owner, its group or others may execute.
func IsProgram(path string) bool {
	fd, err := Open(path, Way)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return err == nil && uint32(st.Mode)&unix.S_IFMT == unix.S_IFREG && st.Mode&0o111 != 0
}

// Split splits a path at its last slash. Unlike the functions of path/filepath, Split and Join do not
// clean paths, because ".." after a symlink then has another meaning than for the kernel.
func Split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	switch {
	case i < 0:
		return ".", path
	case i == 0:
		return "/", path[1:]
	}
	return path[:i], path[i+1:]
}

// Join returns the path of a name in a directory, without cleaning it.
func Join(dir, name string) string {
	if dir == "/" {
		return dir + name
	}
	return dir + "/" + name
}

// below opens "/" as an os.Root, once. An os.Root follows no magic link, because it reads the text of
// each symlink and resolves it itself.
var below = sync.OnceValues(func() (*os.Root, error) { return os.OpenRoot("/") })

// Root opens the open directory fd once more, as an os.Root. The error is EBUSY if another directory
// is now at its path. Root must be able to open each directory on the path for reading.
func Root(fd int) (*os.Root, error) {
	at, err := Where(fd)
	if err != nil {
		return nil, err
	}
	slash, err := below()
	if v := seen(); v != nil {
		slash, err = v.below, nil
	}
	if err != nil {
		return nil, err
	}
	root, err := slash.OpenRoot(cmp.Or(strings.TrimPrefix(at, "/"), "."))
	if err != nil {
		return nil, err
	}
	// The directory may have been moved since fd was opened: compare it with the opened one.
	var want, got unix.Stat_t
	err = unix.Fstat(fd, &want)
	if err == nil {
		err = statRoot(root, &got)
	}
	if err == nil && (want.Dev != got.Dev || want.Ino != got.Ino) {
		err = unix.EBUSY
	}
	if err != nil {
		_ = root.Close()
		return nil, err
	}
	return root, nil
}

func statRoot(root *os.Root, st *unix.Stat_t) error {
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Fstat(int(f.Fd()), st)
}
