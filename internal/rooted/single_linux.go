package rooted

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// Unlink removes an entry that is not a directory: conflict for a directory. It returns nil if the name does not exist.
func Unlink(d Dir, name string) error {
	if err := single(name); err != nil {
		return err
	}
	err := unix.Unlinkat(d.fd, name, 0)
	switch {
	case err == nil, errors.Is(err, syscall.ENOENT):
		return nil
	case errors.Is(err, syscall.EISDIR):
		return holdfast.Errorf(holdfast.KindConflict, "tree.remove", "cannot remove %s as a file: it is a directory", holdfast.Quote(name))
	}
	return failed("unlink", name, err)
}

// Rmdir removes an empty directory. gone reports whether the name does not exist any more: a directory that is not
// empty, a mount point, and anything that is not a directory stays.
func Rmdir(d Dir, name string) (gone bool, err error) {
	if err := single(name); err != nil {
		return false, err
	}
	err = unix.Unlinkat(d.fd, name, unix.AT_REMOVEDIR)
	switch {
	case err == nil, errors.Is(err, syscall.ENOENT):
		return true, nil
	case errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, syscall.EEXIST), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EBUSY):
		return false, nil
	}
	return false, failed("rmdir", name, err)
}

// Move renames the entry old of the directory from to name in the directory to. An entry that already has this name is
// replaced, as by rename(2): a directory replaces only an empty directory, anything else only what is not a directory.
func Move(from Dir, old string, to Dir, name string) error {
	return rename(from, old, to, name, 0)
}

// Add does what Move does, but replaces nothing: if the new name exists, it returns conflict with fs.ErrExist in the
// chain. If the file system cannot do this in one step, Add returns errors.ErrUnsupported and changes nothing.
func Add(from Dir, old string, to Dir, name string) error {
	return rename(from, old, to, name, unix.RENAME_NOREPLACE)
}

// Exchange gives two entries of any type each other's name, in one step; not_found if one of the names does not exist.
// If the file system cannot do this, Exchange returns errors.ErrUnsupported and changes nothing.
func Exchange(from Dir, old string, to Dir, name string) error {
	return rename(from, old, to, name, unix.RENAME_EXCHANGE)
}

func rename(from Dir, old string, to Dir, name string, flag uint) error {
	if err := errors.Join(single(old), single(name)); err != nil {
		return err
	}
	err := unix.Renameat2(from.fd, old, to.fd, name, flag)
	if flag != 0 && errors.Is(err, syscall.EINVAL) {
		err = errors.Join(errors.ErrUnsupported, err) // file systems that do not know the flag return EINVAL
	}
	return failed("rename", name, err)
}

// OpenFile opens a regular file of d for reading, without changing its mode; conflict if the name is something else.
func OpenFile(d Dir, name string) (Handle, Entry, error) {
	if err := single(name); err != nil {
		return Handle{}, Entry{}, err
	}
	fd, err := unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return Handle{}, Entry{}, failed("open", name, err)
	}
	h := Handle{fd: fd}
	e, err := h.Stat()
	if err == nil && !e.Mode.IsRegular() {
		err = holdfast.Errorf(holdfast.KindConflict, "tree.read", "cannot read %s: it is not a regular file", holdfast.Quote(name))
	}
	if err != nil {
		h.Close()
		return Handle{}, e, fail("tree.read", err)
	}
	e.Name = name
	return h, e, nil
}

// Names returns the names in a directory of d, in any order; too_large if it has more than most.
func Names(d Dir, name string, most int) (names []string, err error) {
	if err := single(name); err != nil {
		return nil, err
	}
	fd, err := openBeneath(d.fd, name, directory)
	if err != nil {
		return nil, failed("open", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	list, err := f.Readdirnames(most + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, failed("list", name, err)
	}
	if len(list) > most {
		return nil, holdfast.Errorf(holdfast.KindTooLarge, "tree.list", "the directory %s has more than %d entries", holdfast.Quote(name), most)
	}
	return list, nil
}
