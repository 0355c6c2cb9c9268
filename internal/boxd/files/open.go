package files

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// file is an open regular file. It reads by the descriptor itself: os.File
// would park the thread in the poller where a read says EAGAIN (as some files
// of /proc do); here that is an error.
type file struct {
	fd int
	st unix.Stat_t
}

// openRegular opens a regular file, following symlinks, and never waits: a
// FIFO, socket or device is refused without being used.
func openRegular(op, shown, path string, flags int) (*file, error) {
	// The look before keeps devices from being opened at all; the one after is
	// the one that counts.
	info, err := os.Stat(path)
	if err != nil {
		return nil, fail(op, shown, err)
	}
	if err := mustBeRegular(op, shown, info.Mode()); err != nil {
		return nil, err
	}
	fd, err := openRetry(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC)
	if err != nil {
		return nil, fail(op, shown, err)
	}
	f := &file{fd: fd}
	if err := unix.Fstat(fd, &f.st); err != nil {
		f.close()
		return nil, fail(op, shown, err)
	}
	if uint32(f.st.Mode)&unix.S_IFMT != unix.S_IFREG {
		f.close()
		return nil, notRegular(op, shown, "a special file")
	}
	return f, nil
}

// openRegularAt is openRegular of a name in an open directory; it follows no link.
func openRegularAt(op, shown string, dir int, name string, flags int) (*file, error) {
	f := &file{}
	if err := unix.Fstatat(dir, name, &f.st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, fail(op, shown, err)
	}
	if err := mustBeRegular(op, shown, modeOf(uint32(f.st.Mode))); err != nil {
		return nil, err
	}
	var err error
	if f.fd, err = openAtRetry(dir, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC); err != nil {
		return nil, fail(op, shown, err)
	}
	if err := unix.Fstat(f.fd, &f.st); err != nil {
		f.close()
		return nil, fail(op, shown, err)
	}
	if uint32(f.st.Mode)&unix.S_IFMT != unix.S_IFREG {
		f.close()
		return nil, notRegular(op, shown, "a special file")
	}
	return f, nil
}

// modeOf is the type of a file as os has it.
func modeOf(mode uint32) os.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 0
	case unix.S_IFDIR:
		return os.ModeDir
	case unix.S_IFIFO:
		return os.ModeNamedPipe
	case unix.S_IFSOCK:
		return os.ModeSocket
	case unix.S_IFBLK, unix.S_IFCHR:
		return os.ModeDevice
	}
	return os.ModeIrregular
}

func openRetry(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags, 0)
		if !errors.Is(err, syscall.EINTR) {
			return fd, err
		}
	}
}

func mustBeRegular(op, shown string, m os.FileMode) error {
	switch {
	case m.IsRegular():
		return nil
	case m.IsDir():
		return notRegular(op, shown, "a directory").WithHint("list it instead")
	case m&os.ModeNamedPipe != 0:
		return notRegular(op, shown, "a named pipe")
	case m&os.ModeSocket != 0:
		return notRegular(op, shown, "a socket")
	case m&os.ModeDevice != 0:
		return notRegular(op, shown, "a device")
	}
	return notRegular(op, shown, "a special file")
}

func notRegular(op, shown, what string) *holdfast.Error {
	return holdfast.Errorf(holdfast.KindInvalid, op, "%s is %s, not a regular file", holdfast.Quote(shown), what)
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

func (f *file) close() { _ = unix.Close(f.fd) }

// readAll reads up to max bytes into buf's space. over reports that there was more.
func (f *file) readAll(buf []byte, max int) (data []byte, over bool, err error) {
	if f.st.Size > int64(max) {
		return nil, true, nil
	}
	data = buf[:0]
	// A byte more than the size shows the end of the file without growing.
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

// openDir opens a directory and nothing else, without waiting.
func openDir(path string) (*os.File, error) {
	fd, err := openRetry(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_CLOEXEC)
	if err != nil {
		return nil, err
	}
	// The descriptor must look blocking, or os would hand it to the poller.
	if err := unix.SetNonblock(fd, false); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// syncDir makes the entries of a directory durable.
func syncDir(path string) error {
	d, err := openDir(path)
	if err != nil {
		return err
	}
	return errors.Join(syncOpenDir(d.Sync()), d.Close())
}

// syncOpenDir is what an fsync of a directory came to: some file systems have none for
// directories; they keep order by themselves.
func syncOpenDir(err error) error {
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}
