package files

import (
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/paths"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// maxLinks is how many symlinks are followed on the way to a file; the kernel has the same limit.
const maxLinks = 40

// Write creates or replaces a regular file. If the path is a symlink, it writes the link's
// target, as editors do, and the link stays. The new content is complete and on disk before the
// file's name leads to it; if reading data fails, nothing has changed. An existing file keeps its
// mode, and its owner where that is allowed.
func (f *FS) Write(req wire.WriteRequest, data io.Reader) (wire.WriteAnswer, error) {
	const op = "file.write"
	var none wire.WriteAnswer
	if strings.HasSuffix(req.Path, "/") {
		return none, holdfast.Errorf(holdfast.KindInvalid, op, "cannot write %s: the path ends with a slash, so it names a directory", holdfast.Quote(req.Path))
	}
	path, err := f.door.resolve(op, req.Path)
	if err != nil {
		return none, err
	}
	if req.Parents {
		above, _ := paths.Split(path)
		if err := f.door.mkdirAll(op, req.Path, above); err != nil {
			return none, fail(op, req.Path, err)
		}
	}
	t, err := f.openTarget(op, req.Path, path)
	if err != nil {
		if !req.Parents && holdfast.IsKind(err, holdfast.KindNotFound) {
			err = holdfast.Errorf(holdfast.KindNotFound, op, "the parent directory of %s does not exist", holdfast.Quote(req.Path))
		}
		return none, err
	}
	defer t.close()
	if !t.exists {
		if t.perm = req.Mode & 0o777; t.perm == 0 {
			t.perm = 0o666 &^ f.umask
		}
	}
	size, err := f.replace(op, req.Path, t, data, nil)
	if err != nil {
		return none, err
	}
	return wire.WriteAnswer{Created: !t.exists, Size: size}, nil
}

// target is the file that a write replaces or creates.
type target struct {
	// dir is the open directory of the file, name its name there. name is not a symlink (if it
	// becomes one meanwhile, the rename replaces the symlink).
	dir    int
	name   string
	exists bool
	st     unix.Stat_t
	perm   uint32
}

func (t target) close() { _ = unix.Close(t.dir) }

// openTarget follows symlinks to the file itself. It checks that the file is in the scope and
// that an existing file is regular and writable. The file need not exist, but its directory must,
// and stays open. The caller closes the target.
func (f *FS) openTarget(op, shown, path string) (target, error) {
	for range maxLinks {
		t, link, err := f.step(op, shown, path)
		if err != nil {
			return target{}, err
		}
		if link == "" {
			return t, nil
		}
		path = link
	}
	return target{}, fail(op, shown, syscall.ELOOP)
}

// step opens the directory of a path. If the last name is a symlink, it returns the
// link's target as a path instead.
func (f *FS) step(op, shown, path string) (t target, link string, err error) {
	_, name := paths.Split(path)
	if name == "" || name == "." || name == ".." {
		return t, "", notRegular(op, shown, "a directory")
	}
	dir, name, err := f.door.parent(op, shown, path)
	if err != nil {
		return t, "", err
	}
	defer unix.Close(dir)
	st, err := statAt(dir, name)
	switch {
	case errors.Is(err, syscall.ENOENT):
	case err != nil:
		return t, "", fail(op, shown, err)
	case kindOfMode(uint32(st.Mode)) == kindLink:
		link, err = followed(dir, name)
		if err != nil {
			return t, "", fail(op, shown, err)
		}
		return t, link, nil
	default:
		t.exists = true
	}
	t.name = name
	if t.dir, err = paths.At(dir, ".", toList, 0); err != nil {
		return t, "", fail(op, shown, err)
	}
	if t.exists {
		err = t.inspect(op, shown)
	}
	if err != nil {
		t.close()
	}
	return t, "", err
}

// followed returns the path that a symlink in an open directory points to.
func followed(dir int, name string) (string, error) {
	link, err := linkAt(dir, name)
	if err != nil || strings.HasPrefix(link, "/") {
		return link, err
	}
	at, err := paths.Where(dir)
	return paths.Join(at, link), err
}

// inspect records the state of an existing target. It opens the file for writing, so that the
// kernel refuses a read-only file or mount; the rename alone would not be refused.
func (t *target) inspect(op, shown string) error {
	file, err := regularAt(op, shown, t.dir, t.name, unix.O_WRONLY)
	if errors.Is(err, syscall.ETXTBSY) {
		// The file of a running program cannot be opened for writing, but it can be replaced.
		file, err = regularAt(op, shown, t.dir, t.name, unix.O_RDONLY)
	}
	if err != nil {
		return err
	}
	defer file.close()
	t.st = file.st
	t.perm = uint32(file.st.Mode) & 0o777
	return nil
}

// replace replaces the target with data: temporary file, fsync, rename, fsync of the directory. It works by descriptor,
// where package durable works by path. before runs right before the rename; if it fails, nothing is replaced.
func (f *FS) replace(op, shown string, t target, data io.Reader, before func() error) (int64, error) {
	tmp, name, err := f.temp(t)
	if err != nil {
		return 0, fail(op, shown, err)
	}
	size, err := f.fill(op, shown, tmp, t, data)
	if err = errors.Join(err, unix.Close(tmp.fd)); err == nil && before != nil {
		err = before()
	}
	if err == nil {
		err = unix.Renameat(t.dir, name, t.dir, t.name)
	}
	if err != nil {
		_ = unix.Unlinkat(t.dir, name, 0)
		return 0, fail(op, shown, err)
	}
	return size, after(op, shown, syncOpenDir(unix.Fsync(t.dir)))
}

func (f *FS) fill(op, shown string, tmp *file, t target, data io.Reader) (int64, error) {
	// Hide the file's other methods, so that io.CopyBuffer only calls the plain blocking Write.
	src := &source{r: data}
	size, err := io.CopyBuffer(struct{ io.Writer }{tmp}, src, make([]byte, 64<<10))
	switch {
	case src.err != nil && holdfast.KindOf(src.err) != holdfast.KindInternal:
		return 0, src.err
	case src.err != nil:
		return 0, holdfast.Errorf(holdfast.KindUnavailable, op, "the data to write to the file %s broke off: %w", holdfast.Quote(shown), src.err)
	case err != nil:
		return 0, err
	}
	if t.exists && (t.st.Uid != uint32(os.Geteuid()) || t.st.Gid != uint32(os.Getegid())) {
		// Best effort: an ordinary user cannot change a file's owner.
		_ = unix.Fchown(tmp.fd, int(t.st.Uid), int(t.st.Gid))
	}
	if err := unix.Fchmod(tmp.fd, t.perm); err != nil {
		return 0, err
	}
	return size, unix.Fsync(tmp.fd)
}

// source stores the error of a reader, so that it can be distinguished from an error of the file.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		s.err = err
	}
	return n, err
}

// temp creates a temporary file with a random name in the target's directory, and
// returns it with its name.
func (f *FS) temp(t target) (*file, string, error) {
	for try := 0; ; try++ {
		var b [8]byte
		if _, err := io.ReadFull(f.rand, b[:]); err != nil {
			return nil, "", err
		}
		name := ".holdfast-" + hex.EncodeToString(b[:]) + ".tmp"
		fd, err := paths.At(t.dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
		if err == nil {
			return &file{fd: fd}, name, nil
		}
		if !errors.Is(err, syscall.EEXIST) || try == 100 {
			return nil, "", err
		}
	}
}
