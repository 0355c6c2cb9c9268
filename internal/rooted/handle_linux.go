package rooted

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// handle opens the entry that the walk has just passed to its caller. See Entry.Open.
func (w *walker) handle(e Entry) (Handle, Entry, error) {
	if e.Mode.IsDir() {
		if w.given < 0 {
			return Handle{}, e, about(e, "open", syscall.EBADF)
		}
		h := Handle{fd: w.given, borrowed: true}
		now, err := h.Stat()
		return h, now, err
	}
	fd, err := openReadable(w.within, e.Name, !w.Untouched)
	if err != nil {
		return Handle{}, e, about(e, "open", err)
	}
	h := Handle{fd: fd}
	now, err := h.Stat()
	if err == nil && !now.Mode.IsRegular() {
		err = irregular("file.open", e.Path(), "not a regular file")
	}
	if err == nil && w.Untouched && !w.levels[0].entry.mayRead(now) {
		err = about(e, "open", syscall.EACCES)
	}
	if err != nil {
		h.Close()
	}
	return h, now, err
}

// openReadable opens a file for reading. If raise is true and opening a regular file fails with EACCES, openReadable
// gives the file's owner the permission to read it, opens the file, and sets the old mode again.
func openReadable(dir int, name string, raise bool) (int, error) {
	const flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY
	fd, err := openBeneath(dir, name, flags)
	if !raise || !errors.Is(err, syscall.EACCES) {
		return fd, err
	}
	at, perr := openBeneath(dir, name, unix.O_PATH)
	if perr != nil {
		return -1, perr
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if serr := unix.Fstat(at, &st); serr != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return -1, err
	}
	if cerr := unix.Chmod(procPath(at), st.Mode&0o7777|0o400); cerr != nil {
		return -1, err
	}
	fd, err = unix.Open(procPath(at), flags|unix.O_CLOEXEC, 0)
	if cerr := unix.Chmod(procPath(at), st.Mode&0o7777); cerr != nil && err == nil {
		unix.Close(fd)
		return -1, cerr
	}
	return fd, err
}

// procPath returns a path that leads to the file of a descriptor.
func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

func (w *walker) readlink(e Entry) (string, error) {
	target, err := readlinkAt(w.within, e.Name)
	if err != nil {
		return "", about(e, "readlink", err)
	}
	return target, nil
}

func (w *walker) privileged(e Entry) (bool, error) {
	// The path leads through the descriptor of the directory. Lgetxattr does not follow a symlink at the end of a path.
	n, err := unix.Lgetxattr(procPath(w.within)+"/"+e.Name, "security.capability", nil)
	switch {
	case errors.Is(err, syscall.ENODATA), errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.ENOENT):
		return false, nil
	case err != nil:
		return false, about(e, "getxattr", err)
	}
	return n > 0, nil
}

// all does what Entry.All does for the directory that the walk has just passed to its caller. It does not end with ctx,
// since its walk is short and half an answer would be a wrong one.
func (w *walker) all(ctx context.Context, is func(Entry) bool) bool {
	b, yes := mostAll, w.given >= 0
	b.Untouched = w.Untouched
	err := walk(context.WithoutCancel(ctx), procPath(w.given)+"/.", b, func(e Entry, err error) bool {
		yes = yes && err == nil && is(e)
		return yes
	})
	return yes && err == nil
}

func readlinkAt(dir int, name string) (string, error) {
	// Linux limits the target of a symlink to 4,095 bytes.
	buf := make([]byte, 4096)
	n, err := unix.Readlinkat(dir, name, buf)
	if err == nil && n == len(buf) {
		err = syscall.ENAMETOOLONG
	}
	return string(buf[:max(n, 0)]), err
}

// Close closes the handle's descriptor, unless the handle has borrowed it from a walk or from another handle.
func (h Handle) Close() {
	if !h.borrowed {
		unix.Close(h.fd)
	}
}

// Stat returns the stat of the open file. The Entry has no name and no depth.
func (h Handle) Stat() (Entry, error) {
	var st unix.Statx_t
	if err := statx(h.fd, &noName[0], unix.AT_EMPTY_PATH, &st); err != nil {
		return Entry{}, &os.PathError{Op: "stat", Path: "file", Err: err}
	}
	return entryOf(&st), nil
}

// ReadAt reads like io.ReaderAt.
func (h Handle) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		m, err := unix.Pread(h.fd, p[n:], off+int64(n))
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return n, &os.PathError{Op: "read", Path: "file", Err: err}
		case m == 0:
			return n, io.EOF
		default:
			n += m
		}
	}
	return n, nil
}

// NextData returns the offset of the first byte at or after off that is not in a hole. It returns io.EOF if no such
// byte follows, and off on a file system without holes.
func (h Handle) NextData(off int64) (int64, error) {
	at, err := unix.Seek(h.fd, off, unix.SEEK_DATA)
	switch {
	case errors.Is(err, syscall.ENXIO):
		return 0, io.EOF
	case errors.Is(err, syscall.EINVAL):
		return off, nil
	}
	return at, err
}

// NextHole returns the offset of the first byte at or after off that is in a hole; if no hole follows, the file's
// length. It returns off if off is not below the file's length, and nearly the largest int64 on a file system without
// holes.
func (h Handle) NextHole(off int64) (int64, error) {
	at, err := unix.Seek(h.fd, off, unix.SEEK_HOLE)
	switch {
	case errors.Is(err, syscall.ENXIO):
		return off, nil
	case errors.Is(err, syscall.EINVAL):
		return math.MaxInt64 &^ (1<<30 - 1), nil // the file system does not support holes, so none follows
	}
	return at, err
}

// WriteBack writes the file's modified pages to the disk. When a process stores into the file through a memory mapping
// afterwards, the file's ctime changes.
func (h Handle) WriteBack() error {
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	err := unix.SyncFileRange(h.fd, 0, 0, all)
	if err != nil && !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ENOSPC) {
		err = unix.Fdatasync(h.fd)
	}
	if err != nil {
		return &os.PathError{Op: "sync", Path: "file", Err: err}
	}
	return nil
}

// Xattrs returns the extended attributes in the namespace user, sorted by name; too_large if they have more than 128 KiB.
func (h Handle) Xattrs() ([]Xattr, error) {
	names, err := h.xattrNames()
	if err != nil || len(names) == 0 {
		return nil, err
	}
	var out []Xattr
	total := 0
	for _, name := range names {
		value := make([]byte, 1024)
		n, err := unix.Fgetxattr(h.fd, name, value)
		if errors.Is(err, syscall.ERANGE) {
			value = make([]byte, 64<<10)
			n, err = unix.Fgetxattr(h.fd, name, value)
		}
		switch {
		case errors.Is(err, syscall.ENODATA):
			continue
		case err != nil:
			return nil, &os.PathError{Op: "getxattr", Path: "file", Err: err}
		}
		if total += len(name) + n; total > maxXattrs {
			return nil, holdfast.Errorf(holdfast.KindTooLarge, "file.xattrs", "the extended attributes of the file have more than %d bytes", maxXattrs)
		}
		out = append(out, Xattr{Name: name, Value: string(value[:n])})
	}
	slices.SortFunc(out, func(a, b Xattr) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (h Handle) xattrNames() (names []string, err error) {
	var few [256]byte
	list := few[:]
	n, err := unix.Flistxattr(h.fd, list)
	if errors.Is(err, syscall.ERANGE) {
		list = make([]byte, 64<<10)
		n, err = unix.Flistxattr(h.fd, list)
	}
	switch {
	case errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.EPERM):
		return nil, nil
	case err != nil:
		return nil, &os.PathError{Op: "listxattr", Path: "file", Err: err}
	}
	for name := range strings.SplitSeq(string(list[:n]), "\x00") {
		if strings.HasPrefix(name, "user.") {
			names = append(names, name)
		}
	}
	return names, nil
}

// WriteAt writes like io.WriterAt.
func (h Handle) WriteAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		m, err := unix.Pwrite(h.fd, p[n:], off+int64(n))
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return n, failed("write", "file", err)
		}
		n += m
	}
	return n, nil
}

// Truncate sets the length of the file. If the file becomes longer, a hole is added at its end.
func (h Handle) Truncate(size int64) error {
	return failed("truncate", "file", unix.Ftruncate(h.fd, size))
}

// Set gives the file the attributes a. It removes other extended attributes of the namespace "user.", and leaves those
// of other namespaces. fresh says that the file is new, so that there are no extended attributes to remove.
func (h Handle) Set(a Attr, fresh bool) error {
	// A descriptor of O_PATH supports no change itself. The path through /proc leads to the same file.
	at := procPath(h.fd)
	chown := func() error { return unix.Fchown(h.fd, a.UID, a.GID) }
	chmod := func() error { return unix.Fchmod(h.fd, a.Mode) }
	if h.path {
		chown = func() error { return unix.Fchownat(h.fd, "", a.UID, a.GID, unix.AT_EMPTY_PATH) }
		chmod = func() error { return unix.Chmod(at, a.Mode) }
	}
	if err := chown(); err != nil {
		return failed("chown", "file", err)
	}
	if err := setXattrs(at, a.Xattrs, fresh); err != nil {
		return err
	}
	// A change of the owner clears the set-uid bit, so the mode is set after the owner.
	if err := chmod(); err != nil {
		return failed("chmod", "file", err)
	}
	ts := times(a.Mtime)
	var err error
	if h.path {
		err = unix.UtimesNanoAt(unix.AT_FDCWD, at, ts[:], 0)
	} else if _, _, no := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(h.fd), 0, uintptr(unsafe.Pointer(&ts)), 0, 0, 0); no != 0 {
		err = no
	}
	return failed("utimens", "file", err)
}

// Chmod sets the mode of the directory, if it has another mode. It is for a directory whose mode Dir.Open changed. If
// mode is not that of a directory, Chmod does nothing.
func (d Dir) Chmod(mode fs.FileMode) error {
	now, err := d.Stat()
	if err != nil || now.Mode == mode || !mode.IsDir() {
		return err
	}
	return failed("chmod", "directory", os.Chmod(procPath(d.fd), mode))
}

// times returns the two times for a system call that sets the modification time and leaves the access time as it is.
func times(mtime int64) [2]unix.Timespec {
	return [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(mtime)}
}

func setXattrs(at string, want []Xattr, fresh bool) error {
	if !fresh {
		list := make([]byte, 64<<10)
		n, err := unix.Listxattr(at, list)
		if err != nil && !errors.Is(err, syscall.ENOTSUP) {
			return failed("listxattr", "file", err)
		}
		for name := range strings.SplitSeq(string(list[:max(n, 0)]), "\x00") {
			keep := slices.ContainsFunc(want, func(x Xattr) bool { return x.Name == name })
			if !strings.HasPrefix(name, "user.") || keep {
				continue
			}
			if err := unix.Removexattr(at, name); err != nil && !errors.Is(err, syscall.ENODATA) {
				return failed("removexattr", "file", err)
			}
		}
	}
	for _, x := range want {
		if err := unix.Setxattr(at, x.Name, []byte(x.Value), 0); err != nil {
			return failed("setxattr", "file", err)
		}
	}
	return nil
}

func touch(file string) (time.Time, error) {
	ts := [2]unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	err := unix.UtimesNanoAt(unix.AT_FDCWD, file, ts[:], unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		fd, cerr := unix.Open(file, unix.O_CREAT|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if cerr != nil {
			return time.Time{}, &os.PathError{Op: "open", Path: file, Err: cerr}
		}
		unix.Close(fd)
		err = unix.UtimesNanoAt(unix.AT_FDCWD, file, ts[:], unix.AT_SYMLINK_NOFOLLOW)
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Lstat(file, &st)
	}
	if err != nil {
		return time.Time{}, &os.PathError{Op: "touch", Path: file, Err: err}
	}
	return time.Unix(st.Ctim.Unix()), nil
}
