package files

import (
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/paths"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// maxLinks is how many symlinks an operation follows from a path to its file; the limit of the kernel is the same.
const maxLinks = 40

// Write creates or replaces a regular file. If the path is a symlink, Write replaces the target of
// the symlink, as editors do. The file's name leads to the new content only once all of it is on
// disk. If data cannot be read to its end, the file stays as it is. A file that is replaced keeps
// its mode, and also its owner if boxd may set the owner.
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
	unlock := func() {}
	defer func() { unlock() }()
	// Lock only for the rename: data may come slowly, and must not keep edits of other files waiting.
	size, err := f.replace(op, req.Path, t, data, func() error { unlock = t.lock(f.locks); return nil })
	if err != nil {
		return none, err
	}
	return wire.WriteAnswer{Created: !t.exists, Size: size}, nil
}

// target is the file that a write replaces or creates.
type target struct {
	// dir is the open directory that contains the file; name is the file's name in it. name was not a
	// symlink when it was looked at; if it is one later, the rename replaces the symlink.
	dir    int
	name   string
	exists bool
	st     unix.Stat_t
	perm   uint32
}

func (t target) close() { _ = unix.Close(t.dir) }

// lock makes other edits and writes of the same target wait until the returned function is called:
// between the read and the rename of an edit, no other edit or write by boxd may replace the file.
// Several targets can share a lock.
func (t target) lock(locks *[64]sync.Mutex) (unlock func()) {
	var st unix.Stat_t
	_ = unix.Fstat(t.dir, &st) // Fstat does not fail for an open descriptor
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, st.Dev, st.Ino, t.name)
	m := &locks[h.Sum32()%uint32(len(locks))]
	m.Lock()
	return m.Unlock
}

// openTarget follows symlinks to the file to write, and opens the directory that contains it. It
// returns an error if the file is outside the scope, or if it exists and is not a regular file that
// may be written. The file need not exist, but its directory must. The caller closes the target.
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

// step opens the directory that contains the last name of a path. If the last name is a symlink, step
// opens nothing and returns the path that the symlink points to.
func (f *FS) step(op, shown, path string) (t target, link string, err error) {
	_, name := paths.Split(path)
	if name == "" || name == "." || name == ".." {
		return t, "", notRegular(op, shown, "a directory").WithHint(nameFile)
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

// inspect stores the stat and the mode of an existing target. It opens the file for writing, because
// the kernel then refuses a file that may not be written; it would allow the later rename.
func (t *target) inspect(op, shown string) error {
	file, err := regularAt(op, shown, t.dir, t.name, unix.O_WRONLY)
	if errors.Is(err, syscall.ETXTBSY) {
		// The kernel does not open the file of a running program for writing, but the file can be replaced.
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

// replace replaces the target with data, in these steps: write a temporary file, fsync it, rename it,
// fsync the directory. It uses the open directory, while package durable uses paths. If before is
// not nil, it runs right before the rename; if it returns an error, the target stays as it is.
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
	// Hide all methods of the file but Write, so that io.CopyBuffer calls no other.
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
		// Ignore the error: an ordinary user may not change the owner of a file.
		_ = unix.Fchown(tmp.fd, int(t.st.Uid), int(t.st.Gid))
	}
	if err := unix.Fchmod(tmp.fd, t.perm); err != nil {
		return 0, err
	}
	return size, unix.Fsync(tmp.fd)
}

// source reads from r and stores the error of r, so that fill can distinguish it from an error of the file.
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
