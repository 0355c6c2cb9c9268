package rooted

import (
	"errors"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// openAt opens a path below dir in the same way as openBeneath.
func openAt(dir, name string, flags int) (int, error) {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, lookup(dir, err)
	}
	defer unix.Close(root)
	fd, err := openBeneath(root, name, flags)
	return fd, lookup(name, err)
}

// lookup turns the error of opening a path into the right one: a path below a regular file does
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
	return stamp(fd, name)
}

func stamp(fd int, name string) (Stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Stamp{}, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		//nolint:unconvert // the width differs between architectures
		return Stamp{Dev: uint64(st.Dev), Ino: st.Ino, Size: st.Size, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano()}, nil
	case unix.S_IFLNK:
		return Stamp{}, irregular("file.open", name, "a symlink")
	case unix.S_IFDIR:
		return Stamp{}, irregular("file.open", name, "a directory")
	}
	return Stamp{}, irregular("file.open", name, "not a regular file")
}

func open(dir, name string) (*os.File, Stamp, error) {
	fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, Stamp{}, err
	}
	f := os.NewFile(uintptr(fd), name)
	st, err := stamp(fd, name)
	if err != nil {
		f.Close()
		return nil, Stamp{}, err
	}
	return f, st, nil
}

// openOwned is open with the rights of the owner of dir; see Entry.mayRead.
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
	denied := func() error { return &os.PathError{Op: "open", Path: name, Err: syscall.EACCES} }
	for piece, rest, below := strings.Cut(name, "/"); below; piece, rest, below = strings.Cut(rest, "/") {
		fd, err := openBeneath(at.fd, piece, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return nil, Stamp{}, lookup(name, err)
		}
		at.Close()
		at = Dir{Handle{fd: fd, path: true}}
		if e, err := at.Stat(); err != nil || !owner.mayRead(e) {
			return nil, Stamp{}, denied()
		}
	}
	fd, err := openBeneath(at.fd, name[strings.LastIndexByte(name, '/')+1:], unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, Stamp{}, lookup(name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	st, err := stamp(fd, name)
	if err == nil {
		var e Entry
		if e, err = (Handle{fd: fd}).Stat(); err == nil && !owner.mayRead(e) {
			err = denied()
		}
	}
	if err != nil {
		f.Close()
		return nil, Stamp{}, err
	}
	return f, st, nil
}
