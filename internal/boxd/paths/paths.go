// Package paths opens the target of a path without ever leaving the box.
//
// It owns the one way in which boxd resolves a path that an agent may have shaped. boxd
// and its parts import it; it imports the standard library and golang.org/x/sys only.
// Invariant (I-19): the kernel resolves every path below the box's "/" and follows no
// magic link of /proc, so that at no moment a link leads to a descriptor of boxd or out
// of the box. A kernel that cannot do that refuses every path.
package paths

import (
	"cmp"
	"errors"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// maxTries is how often a path is resolved again because a file was renamed meanwhile. A process
// that keeps renaming must not block a call for ever.
const maxTries = 1000

// slash is the box's "/". It is opened once: boxd has entered the box's root before it resolves
// any path. Threads with a root of their own have called Enter.
var slash = sync.OnceValues(func() (int, error) {
	return unix.Open("/", Way|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
})

// Open opens the target of an absolute path. The caller closes the descriptor. The error is ELOOP
// for too many symlinks, or for a magic link as /proc/1/fd/3; it is EBUSY if names on the path
// change all the time.
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

// OpenIn does the same as Open, with the open directory root as "/".
func OpenIn(root int, path string, flags int) (int, error) {
	return again(func() (int, error) { return openIn(root, path, flags|unix.O_CLOEXEC) })
}

// Below opens a path below an open directory. The path must contain no symlink and no "..".
func Below(dir int, rel string, flags int) (int, error) {
	return again(func() (int, error) { return openBelow(dir, rel, flags|unix.O_CLOEXEC) })
}

// At opens one name in an open directory, without following a symlink.
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

// IsProgram reports whether path leads to a regular file with an execute permission for anyone.
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

// Split and Join split and join paths without cleaning them, so that ".." after a symlink keeps
// the kernel's meaning.
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

// Join puts a name below a directory; see Split.
func Join(dir, name string) string {
	if dir == "/" {
		return dir + name
	}
	return dir + "/" + name
}

// below is "/" as an os.Root, which follows no magic link: it resolves symlinks itself, by their
// text.
var below = sync.OnceValues(func() (*os.Root, error) { return os.OpenRoot("/") })

// Root opens an open directory once more, as an os.Root. The error is EBUSY if the directory is
// moved at that moment. Each directory on the way must be readable.
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
