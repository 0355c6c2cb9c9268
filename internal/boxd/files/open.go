package files

import (
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/paths"
)

// file is an open regular file. It calls read and write on the descriptor directly. If a read
// returns EAGAIN, as it does for some files of /proc, os.File would wait; file returns the error.
type file struct {
	fd int
	st unix.Stat_t
}

// regularAt opens a regular file by its name in an open directory. It follows no symlink.
func regularAt(op, shown string, dir int, name string, flags int) (*file, error) {
	return regular(op, shown, flags|unix.O_NOFOLLOW, func(flags int) (int, error) { return paths.At(dir, name, flags, 0) })
}

// regularBelow opens a file for reading, by its path below an open directory. The caller knows from
// the directory entry that the file is a regular file. regularBelow refuses any other file, also if
// it has replaced the regular file meanwhile.
func regularBelow(op, shown string, dir int, rel string) (*file, error) {
	return used(op, shown, unix.O_RDONLY, func() (int, error) {
		return paths.Below(dir, rel, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	})
}

func regular(op, shown string, flags int, open func(flags int) (int, error)) (*file, error) {
	// First check the type with an O_PATH descriptor, because opening a device can have effects. The
	// file can be replaced after this check, so its type is checked again after the real open.
	way, err := open(paths.Way | flags&unix.O_NOFOLLOW)
	if err != nil {
		return nil, fail(op, shown, err)
	}
	look := &file{fd: way}
	err = look.mustBeRegular(op, shown, flags)
	look.close()
	if err != nil {
		return nil, err
	}
	return used(op, shown, flags, func() (int, error) { return open(flags | unix.O_NONBLOCK | unix.O_NOCTTY) })
}

// used opens a file for reading or writing, as flags say, and refuses it if it is not a regular file.
func used(op, shown string, flags int, open func() (int, error)) (*file, error) {
	fd, err := open()
	if err != nil {
		return nil, fail(op, shown, err)
	}
	f := &file{fd: fd}
	if err := f.mustBeRegular(op, shown, flags); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// mustBeRegular returns an error if the open file is not a regular file. flags say what it is to be opened for.
func (f *file) mustBeRegular(op, shown string, flags int) error {
	if err := unix.Fstat(f.fd, &f.st); err != nil {
		return fail(op, shown, err)
	}
	switch uint32(f.st.Mode) & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		hint := "list the directory instead"
		if flags&unix.O_ACCMODE != unix.O_RDONLY {
			hint = nameFile
		}
		return notRegular(op, shown, "a directory").WithHint("%s", hint)
	case unix.S_IFIFO:
		return notRegular(op, shown, "a named pipe")
	case unix.S_IFSOCK:
		return notRegular(op, shown, "a socket")
	case unix.S_IFBLK, unix.S_IFCHR:
		return notRegular(op, shown, "a device")
	}
	return notRegular(op, shown, "a special file")
}

// nameFile is the hint if a directory is to be written as a file.
const nameFile = "name the file to write in the directory"

func notRegular(op, shown, what string) *holdfast.Error {
	return holdfast.Errorf(holdfast.KindInvalid, op, "the path %s is %s, not a regular file", holdfast.Quote(shown), what)
}

// Read implements io.Reader.
func (f *file) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, err := unix.Read(f.fd, p)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Write implements io.Writer.
func (f *file) Write(p []byte) (done int, err error) {
	for done < len(p) {
		n, err := unix.Write(f.fd, p[done:])
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return done, err
		}
		done += max(n, 0)
	}
	return done, nil
}

func (f *file) close() { _ = unix.Close(f.fd) }

// readAll reads the whole file into the space of buf, or into new memory if buf is too small. If the
// file has more than max bytes, it returns over as true and no data.
func (f *file) readAll(buf []byte, max int) (data []byte, over bool, err error) {
	if f.st.Size > int64(max) {
		return nil, true, nil
	}
	data = buf[:0]
	// A buffer of one byte more than the file's size lets the loop read to the end without growing data.
	if want := int(f.st.Size) + 1; cap(data) < want {
		data = make([]byte, 0, want)
	}
	for {
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		n, err := f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case len(data) > max:
			return nil, true, nil
		case errors.Is(err, io.EOF):
			return data, false, nil
		case err != nil:
			return nil, false, err
		}
	}
}

// toList are the flags with which a directory is opened to list its entries. They open nothing but directories.
const toList = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK

// syncAt flushes the entries of an open directory to disk. It also works for a directory that was opened with O_PATH.
func syncAt(dir int) error {
	fd, err := paths.At(dir, ".", toList, 0)
	if err != nil {
		return err
	}
	err = syncOpenDir(unix.Fsync(fd))
	return errors.Join(err, unix.Close(fd))
}

// syncOpenDir takes the result of an fsync of a directory and returns it, but returns nil if the
// error means that the file system has no fsync for directories.
func syncOpenDir(err error) error {
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}
