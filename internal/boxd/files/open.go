package files

import (
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/paths"
)

// open opens what an absolute path leads to, below the box's "/" and through no magic
// link. Files in /proc or outside of the scope are refused. The open file is judged, so
// that no rename can come between the check and the use.
func (f *FS) open(op, shown, path string, flags int) (int, error) {
	fd, err := paths.Open(path, flags)
	if err != nil {
		return -1, fail(op, shown, err)
	}
	if err := f.admit(op, shown, path, fd); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// admit refuses an open file that no file operation may touch.
func (f *FS) admit(op, shown, path string, fd int) error {
	if err := f.notProc(op, shown, fd); err != nil {
		return err
	}
	if f.scope == nil {
		return nil
	}
	at, err := paths.Where(fd)
	if err != nil {
		return fail(op, shown, err)
	}
	return f.allowed(op, shown, path, at)
}

// notProc refuses a file of a procfs: the process that serves file operations would
// show its own descriptors, memory and environment there.
func (f *FS) notProc(op, shown string, fd int) error {
	if f.cfg.Proc {
		return nil
	}
	in, err := paths.InProc(fd)
	if err != nil {
		return fail(op, shown, err)
	}
	if in {
		return holdfast.Errorf(holdfast.KindDenied, op, "%s leads into /proc, which file operations do not open", holdfast.Quote(shown)).
			WithHint("use Bash for /proc, as in: cat /proc/meminfo")
	}
	return nil
}

// parent opens the directory of the last name of path, and returns that name. The name
// may be missing or be a link, which is not followed; its directory is admitted instead
// of it.
func (f *FS) parent(op, shown, path string) (dir int, name string, err error) {
	above, name := paths.Split(path)
	dir, err = paths.Open(above, paths.Way|unix.O_DIRECTORY)
	if err != nil {
		return -1, "", fail(op, shown, err)
	}
	if err = f.notProc(op, shown, dir); err == nil && f.scope != nil {
		var at string
		if at, err = paths.Where(dir); err == nil {
			err = f.allowed(op, shown, path, paths.Join(at, name))
		}
	}
	if err != nil {
		_ = unix.Close(dir)
		return -1, "", fail(op, shown, err)
	}
	return dir, name, nil
}

// file is an open regular file. It reads by the descriptor itself: os.File
// would park the thread in the poller where a read says EAGAIN (as some files
// of /proc do); here that is an error.
type file struct {
	fd int
	st unix.Stat_t
}

// openRegular opens a regular file, following links, and never waits: a FIFO, socket or
// device is refused without being used.
func (f *FS) openRegular(op, shown, path string, flags int) (*file, error) {
	return regular(op, shown, flags, func(flags int) (int, error) { return f.open(op, shown, path, flags) })
}

// regularAt is openRegular of a name in an open directory; it follows no link.
func regularAt(op, shown string, dir int, name string, flags int) (*file, error) {
	return regular(op, shown, flags|unix.O_NOFOLLOW, func(flags int) (int, error) { return paths.At(dir, name, flags, 0) })
}

// regularBelow opens a file below an open directory whose entry says that it is
// regular.
func regularBelow(op, shown string, dir int, rel string) (*file, error) {
	return used(op, shown, func() (int, error) {
		return paths.Below(dir, rel, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	})
}

func regular(op, shown string, flags int, open func(flags int) (int, error)) (*file, error) {
	// The look before keeps devices from being opened at all; the one after is
	// the one that counts.
	way, err := open(paths.Way | flags&unix.O_NOFOLLOW)
	if err != nil {
		return nil, fail(op, shown, err)
	}
	look := &file{fd: way}
	err = look.mustBeRegular(op, shown)
	look.close()
	if err != nil {
		return nil, err
	}
	return used(op, shown, func() (int, error) { return open(flags | unix.O_NONBLOCK | unix.O_NOCTTY) })
}

// used opens a file for reading or writing, and refuses all but a regular file.
func used(op, shown string, open func() (int, error)) (*file, error) {
	fd, err := open()
	if err != nil {
		return nil, fail(op, shown, err)
	}
	f := &file{fd: fd}
	if err := f.mustBeRegular(op, shown); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// mustBeRegular refuses an open file that is not regular.
func (f *file) mustBeRegular(op, shown string) error {
	if err := unix.Fstat(f.fd, &f.st); err != nil {
		return fail(op, shown, err)
	}
	switch uint32(f.st.Mode) & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return notRegular(op, shown, "a directory").WithHint("list it instead")
	case unix.S_IFIFO:
		return notRegular(op, shown, "a named pipe")
	case unix.S_IFSOCK:
		return notRegular(op, shown, "a socket")
	case unix.S_IFBLK, unix.S_IFCHR:
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

// toList are the flags that open only directories, without waiting.
const toList = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK

// syncAt makes the entries of an open directory durable. The directory may be open with
// O_PATH.
func syncAt(dir int) error {
	fd, err := paths.At(dir, ".", toList, 0)
	if err != nil {
		return err
	}
	err = syncOpenDir(unix.Fsync(fd))
	return errors.Join(err, unix.Close(fd))
}

// syncOpenDir is what an fsync of a directory came to: some file systems have none for
// directories; they keep order by themselves.
func syncOpenDir(err error) error {
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}
