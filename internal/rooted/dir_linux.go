package rooted

import (
	"errors"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// OpenDir opens the directory rel below dir with O_PATH, for the caller's *at calls. The caller
// closes it. OpenDir follows no symlink, not even dir itself, and enters no mount.
func OpenDir(dir, rel string) (int, error) {
	top, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if rel == "." {
		return top, nil
	}
	defer unix.Close(top)
	return openBeneath(top, rel, unix.O_PATH|unix.O_DIRECTORY)
}

const directory = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK

func openTree(dir string) (Dir, error) {
	fd, err := unix.Open(dir, directory|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return Dir{}, holdfast.Errorf(holdfast.KindConflict, "tree.open", "the tree %s is not a directory", holdfast.Quote(dir))
	}
	if err != nil {
		return Dir{}, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return Dir{Handle{fd: fd}}, nil
}

func makeTree(dir string) (Dir, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return Dir{}, err
	}
	return openTree(dir)
}

// failed adds the names of the system call and of the entry, and a Kind, to an error. The Kind is conflict if the entry
// is not a directory (ENOTDIR), is a symlink (ELOOP), or if something is mounted there (EXDEV); else that of fail.
func failed(call, name string, err error) error {
	if err == nil {
		return nil
	}
	perr := &os.PathError{Op: call, Path: holdfast.Quote(name), Err: err}
	for _, e := range []error{syscall.ENOTDIR, syscall.ELOOP, syscall.EXDEV} {
		if errors.Is(err, e) {
			return holdfast.Errorf(holdfast.KindConflict, "tree.write", "%w", perr)
		}
	}
	return fail("tree.write", perr)
}

// single returns an error if name is not a single element of a path.
func single(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return holdfast.Errorf(holdfast.KindInvalid, "tree.write", "%s is not the name of a directory entry", holdfast.Quote(name))
	}
	return nil
}

// Open opens a directory in d. If the server is not root and the directory's owner lacks a permission for it, Open
// first gives the owner all of them: the caller sets the mode afterwards. Open returns conflict if the entry is not a
// directory, and not_found if it does not exist.
func (d Dir) Open(name string) (Dir, error) {
	if err := single(name); err != nil {
		return Dir{}, err
	}
	open := openForRemoval
	if os.Geteuid() == 0 {
		open = func(dir int, name string) (int, error) { return openBeneath(dir, name, directory) }
	}
	fd, err := open(d.fd, name)
	if err != nil {
		return Dir{}, failed("open", name, err)
	}
	return Dir{Handle{fd: fd}}, nil
}

// Below opens the directory at a clean path below d with O_PATH, and changes no mode: names cannot be listed through
// the result. For the empty path the result is d, whose descriptor it borrows. Errors are those of Open.
func (d Dir) Below(rel string) (Dir, error) {
	at := Dir{Handle{fd: d.fd, borrowed: true}}
	for rel != "" {
		// A path may be longer than a system call takes, so it is opened in pieces.
		piece := rel
		if len(piece) > longPath {
			piece = rel[:strings.LastIndexByte(rel[:longPath], '/')]
		}
		rel = strings.TrimPrefix(rel[len(piece):], "/")
		fd, err := openBeneath(at.fd, piece, unix.O_PATH|unix.O_DIRECTORY)
		at.Close()
		if err != nil {
			return Dir{}, failed("open", piece, err)
		}
		at = Dir{Handle{fd: fd, path: true}}
	}
	return at, nil
}

// longPath is how many bytes a path for one system call has at most. Linux takes paths of 4,095 bytes; a name has at
// most 255.
const longPath = 4000

// Mkdir makes a directory that only the server can reach, and opens it; conflict if the name exists, or if somebody puts
// another entry in its place.
func (d Dir) Mkdir(name string) (Dir, error) {
	if err := single(name); err != nil {
		return Dir{}, err
	}
	if err := unix.Mkdirat(d.fd, name, 0o700); err != nil {
		return Dir{}, failed("mkdir", name, err)
	}
	fd, err := openBeneath(d.fd, name, directory)
	if err != nil {
		return Dir{}, failed("open", name, err)
	}
	if err := errors.Join(made(fd, name, unix.S_IFDIR), empty(fd, name)); err != nil {
		unix.Close(fd)
		return Dir{}, err
	}
	return Dir{Handle{fd: fd}}, nil
}

// Create makes an empty file that only the server can read, and opens it for writing; conflict if the name exists.
func (d Dir) Create(name string) (Handle, error) {
	if err := single(name); err != nil {
		return Handle{}, err
	}
	fd, err := unix.Openat(d.fd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	return Handle{fd: fd}, failed("create", name, err)
}

// Symlink makes a symlink with an owner and a modification time; conflict if the name exists, or if somebody puts another
// entry in its place.
func (d Dir) Symlink(target, name string, a Attr) error {
	if err := single(name); err != nil {
		return err
	}
	if err := unix.Symlinkat(target, d.fd, name); err != nil {
		return failed("symlink", name, err)
	}
	fd, err := unix.Openat(d.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return failed("open", name, err)
	}
	defer unix.Close(fd)
	if err := made(fd, name, unix.S_IFLNK); err != nil {
		return err
	}
	if err := unix.Fchownat(fd, "", a.UID, a.GID, unix.AT_EMPTY_PATH); err != nil {
		return failed("chown", name, err)
	}
	ts := times(a.Mtime)
	return failed("utimens", name, unix.UtimesNanoAt(fd, "", ts[:], unix.AT_EMPTY_PATH))
}

// made checks that a descriptor is that of an entry which the server has just made. Whoever may rename in its directory
// can put another entry under the name before it is opened, such as a file of root, to which the server would then give
// another owner.
func made(fd int, name string, kind uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return failed("stat", name, err)
	}
	if st.Mode&unix.S_IFMT != kind || int(st.Uid) != os.Geteuid() || kind != unix.S_IFDIR && st.Nlink != 1 {
		return replaced(name)
	}
	return nil
}

// empty checks that an open directory is empty. It reads to the end: a signal, such as Go sends to its own threads, can end a
// read after any entry, even after "." alone.
func empty(fd int, name string) error {
	for buf := make([]byte, 4<<10); ; {
		n, err := unix.ReadDirent(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return failed("read", name, err)
		}
		if n == 0 {
			break
		}
		if _, _, names := unix.ParseDirent(buf[:n], 1, nil); len(names) > 0 {
			return replaced(name)
		}
	}
	_, err := unix.Seek(fd, 0, 0)
	return failed("seek", name, err)
}

func replaced(name string) error {
	return holdfast.Errorf(holdfast.KindConflict, "tree.write", "another process put another entry in the place of the new entry %s", holdfast.Quote(name))
}

// Link makes another name of the file or symlink that has the name old in the directory from; conflict if name exists.
func (d Dir) Link(from Dir, old, name string) error {
	if err := errors.Join(single(old), single(name)); err != nil {
		return err
	}
	return failed("link", name, unix.Linkat(from.fd, old, d.fd, name, 0))
}

// Remove removes an entry, a directory with its content. It returns nil if the name does not exist.
func (d Dir) Remove(name string) error {
	if err := single(name); err != nil {
		return err
	}
	err := unix.Unlinkat(d.fd, name, 0)
	if errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.EPERM) {
		err = removeAt(d.fd, name)
	}
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return fail("tree.remove", err)
}

// Lstat returns the stat of an entry; not_found if it does not exist.
func (d Dir) Lstat(name string) (Entry, error) {
	h, err := d.Find(name)
	if err != nil {
		return Entry{}, err
	}
	defer h.Close()
	e, err := h.Stat()
	e.Name = name
	return e, err
}

// Entry returns the stat of an entry as a walk would, without opening the entry. It returns not_found if the entry does
// not exist, and conflict if something is mounted there.
func (d Dir) Entry(name string) (Entry, error) {
	if err := single(name); err != nil {
		return Entry{}, err
	}
	text, err := unix.BytePtrFromString(name)
	var st unix.Statx_t
	if err == nil {
		err = statx(d.fd, text, 0, &st)
	}
	if err != nil {
		return Entry{}, failed("stat", name, err)
	}
	e := entryOf(&st)
	if e.Name = name; mounted(&st) {
		return Entry{}, isMount(e)
	}
	return e, nil
}

// Find opens an entry of any type with O_PATH, so that Stat and Set can be called for it. It does not read the entry,
// and does not wait if the entry is a FIFO or a device. It returns not_found if the entry does not exist.
func (d Dir) Find(name string) (Handle, error) {
	if err := single(name); err != nil {
		return Handle{}, err
	}
	fd, err := unix.Openat(d.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	return Handle{fd: fd, path: true}, failed("open", name, err)
}

// Readlink returns the target of a symlink in d.
func (d Dir) Readlink(name string) (string, error) {
	if err := single(name); err != nil {
		return "", err
	}
	target, err := readlinkAt(d.fd, name)
	return target, failed("readlink", name, err)
}
