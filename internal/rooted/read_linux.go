package rooted

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// openAt opens a path below the directory at the path dir. It follows no symlink, and enters no mount below dir.
func openAt(dir, name string, flags int) (int, error) {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, lookup(dir, err)
	}
	defer unix.Close(root)
	fd, err := openBeneath(root, name, flags)
	return fd, lookup(name, err)
}

// lookup turns an error of opening a path into the one that callers get: a path that leads through a regular file does
// not exist (ENOENT), and a symlink is a conflict.
func lookup(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		err = syscall.ENOENT
	case errors.Is(err, syscall.ELOOP):
		return irregular("file.open", name, "a symlink, or a symlink is on its path")
	}
	return &os.PathError{Op: "open", Path: name, Err: err}
}

func stat(dir, name string) (Stamp, error) {
	fd, err := openAt(dir, name, unix.O_PATH)
	if err != nil {
		return Stamp{}, err
	}
	defer unix.Close(fd)
	e, err := regular(fd, name)
	if err != nil {
		return Stamp{}, err
	}
	return e.Stamp(), nil
}

// regular returns the stat of an open file, or an error if it is not a regular file.
func regular(fd int, name string) (Entry, error) {
	e, err := (Handle{fd: fd}).Stat()
	switch {
	case err != nil || e.Mode.IsRegular():
		return e, err
	case e.Mode&fs.ModeSymlink != 0:
		return e, irregular("file.open", name, "a symlink")
	case e.Mode.IsDir():
		return e, irregular("file.open", name, "a directory")
	}
	return e, irregular("file.open", name, "not a regular file")
}

func open(dir, name string) (*os.File, Stamp, error) {
	fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, Stamp{}, err
	}
	return opened(fd, name, func(Entry) bool { return true })
}

// opened returns a file that was opened for reading, or closes it if it is not a regular file that may be read.
func opened(fd int, name string, mayRead func(Entry) bool) (*os.File, Stamp, error) {
	f := os.NewFile(uintptr(fd), name)
	e, err := regular(fd, name)
	if err == nil && !mayRead(e) {
		err = denied(name)
	}
	if err != nil {
		f.Close()
		return nil, Stamp{}, err
	}
	return f, e.Stamp(), nil
}

func denied(name string) error {
	return &os.PathError{Op: "open", Path: name, Err: syscall.EACCES}
}

// openOwned opens a file as open does, but only if the owner of dir may read it; see Entry.mayRead.
func openOwned(dir, name string) (*os.File, Stamp, error) {
	at, err := openTree(dir)
	if err != nil {
		return nil, Stamp{}, err
	}
	defer func() { at.Close() }()
	owner, err := at.Stat()
	if err != nil {
		return nil, Stamp{}, err
	}
	for piece, rest, below := strings.Cut(name, "/"); below; piece, rest, below = strings.Cut(rest, "/") {
		fd, err := openBeneath(at.fd, piece, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return nil, Stamp{}, lookup(name, err)
		}
		at.Close()
		at = Dir{Handle{fd: fd, path: true}}
		if e, err := at.Stat(); err != nil || !owner.mayRead(e) {
			return nil, Stamp{}, denied(name)
		}
	}
	fd, err := openBeneath(at.fd, name[strings.LastIndexByte(name, '/')+1:], unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, Stamp{}, lookup(name, err)
	}
	return opened(fd, name, owner.mayRead)
}
