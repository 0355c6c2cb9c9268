package files

import (
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/wire"
)

// maxLinks is how many symlinks are followed to a file, as in the kernel.
const maxLinks = 40

// Write creates or replaces a regular file. A final symlink is followed, as
// editors do: its target is written and the link stays. The new content is
// complete and on disk before the name shows it; when data fails nothing has
// changed. An existing file keeps its mode, and its owner where that is allowed.
func (f *FS) Write(req wire.WriteRequest, data io.Reader) (wire.WriteAnswer, error) {
	const op = "file.write"
	var none wire.WriteAnswer
	if strings.HasSuffix(req.Path, "/") {
		return none, holdfast.Errorf(holdfast.KindInvalid, op, "%s names a directory", holdfast.Quote(req.Path))
	}
	path, err := f.resolve(op, req.Path)
	if err != nil {
		return none, err
	}
	if _, err := f.located(op, req.Path, path); err != nil {
		return none, err
	}
	if req.Parents {
		if err := mkdirAll(filepath.Dir(path)); err != nil {
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
		if t.perm = os.FileMode(req.Mode).Perm(); t.perm == 0 {
			t.perm = 0o644
		}
	}
	size, err := f.replace(op, req.Path, t, data, nil)
	if err != nil {
		return none, err
	}
	return wire.WriteAnswer{Created: !t.exists, Size: size}, nil
}

// target is the file that a write is to replace or create.
type target struct {
	// dir is the resolved directory, fd that directory itself, name the final name, no
	// symlink (unless it turns into one meanwhile: then the rename replaces the link).
	dir, name string
	fd        int
	exists    bool
	st        unix.Stat_t
	perm      os.FileMode
}

func (t target) path() string { return joinRaw(t.dir, t.name) }

func (t target) close() { _ = unix.Close(t.fd) }

// openTarget follows symlinks to the file itself, which has to lie in the scope, and
// checks that an existing one is regular and writable. The file need not exist; its
// directory must, and is held open. The caller closes the target.
func (f *FS) openTarget(op, shown, path string) (target, error) {
	t, err := f.findTarget(op, shown, path)
	if err != nil {
		return t, err
	}
	if !f.scope.holds(t.path()) {
		return t, outOfScope(op, shown, f.shown(t.path()))
	}
	if t.fd, err = openPlainDir(t.dir, unix.O_RDONLY); err != nil {
		return t, fail(op, shown, err)
	}
	if t.exists {
		err = t.inspect(op, shown)
	}
	if err != nil {
		t.close()
	}
	return t, err
}

// findTarget follows symlinks to the file itself.
func (f *FS) findTarget(op, shown, path string) (target, error) {
	var t target
	for range maxLinks {
		dir, name := splitRaw(path)
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return t, fail(op, shown, err)
		}
		t = target{dir: real, name: name}
		if name == "" || name == "." || name == ".." {
			return t, notRegular(op, shown, "a directory")
		}
		info, err := os.Lstat(t.path())
		if errors.Is(err, os.ErrNotExist) {
			if err := mustBeDir(real); err != nil {
				return t, fail(op, shown, err)
			}
			return t, nil
		}
		if err != nil {
			return t, fail(op, shown, err)
		}
		if info.Mode()&os.ModeSymlink == 0 {
			t.exists = true
			return t, nil
		}
		link, err := os.Readlink(t.path())
		if err != nil {
			return t, fail(op, shown, err)
		}
		if filepath.IsAbs(link) {
			path = link
		} else {
			path = joinRaw(real, link)
		}
	}
	return t, fail(op, shown, syscall.ELOOP)
}

// inspect fills in what is known of an existing target. Opening it for writing
// asks the kernel, so that a read-only file or mount refuses although a rename
// would not.
func (t *target) inspect(op, shown string) error {
	file, err := openRegularAt(op, shown, t.fd, t.name, unix.O_WRONLY)
	if errors.Is(err, syscall.ETXTBSY) {
		// A running program cannot be written to, but replaced.
		file, err = openRegularAt(op, shown, t.fd, t.name, unix.O_RDONLY)
	}
	if err != nil {
		return err
	}
	defer file.close()
	t.st = file.st
	t.perm = os.FileMode(uint32(file.st.Mode)).Perm()
	return nil
}

// replace puts data in the place of the target: temporary file, fsync, rename,
// fsync of the directory. before runs just before the rename and may refuse it.
func (f *FS) replace(op, shown string, t target, data io.Reader, before func() error) (int64, error) {
	tmp, err := f.temp(t)
	if err != nil {
		return 0, fail(op, shown, err)
	}
	name := tmp.Name()
	size, err := f.fill(op, shown, tmp, t, data)
	if err = errors.Join(err, tmp.Close()); err == nil && before != nil {
		err = before()
	}
	if err == nil {
		err = unix.Renameat(t.fd, name, t.fd, t.name)
	}
	if err != nil {
		_ = unix.Unlinkat(t.fd, name, 0)
		return 0, fail(op, shown, err)
	}
	return size, after(op, shown, syncOpenDir(unix.Fsync(t.fd)))
}

func (f *FS) fill(op, shown string, tmp *os.File, t target, data io.Reader) (int64, error) {
	// Hide the writer's other methods: only plain blocking writes are wanted.
	src := &source{r: data}
	size, err := io.CopyBuffer(struct{ io.Writer }{tmp}, src, make([]byte, 64<<10))
	switch {
	case src.err != nil && holdfast.KindOf(src.err) != holdfast.KindInternal:
		return 0, src.err
	case src.err != nil:
		return 0, holdfast.Errorf(holdfast.KindUnavailable, op, "the data for %s was cut off: %w", holdfast.Quote(shown), src.err)
	case err != nil:
		return 0, err
	}
	if t.exists && (t.st.Uid != uint32(os.Geteuid()) || t.st.Gid != uint32(os.Getegid())) {
		// Best effort: an ordinary user may not give a file away.
		_ = tmp.Chown(int(t.st.Uid), int(t.st.Gid))
	}
	if err := tmp.Chmod(t.perm); err != nil {
		return 0, err
	}
	return size, tmp.Sync()
}

// source remembers the error of a reader, to tell it from one of the file.
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

// temp makes a new file that nobody else can have, beside the target. Its name is
// that in the directory.
func (f *FS) temp(t target) (*os.File, error) {
	for try := 0; ; try++ {
		var b [8]byte
		if _, err := io.ReadFull(f.cfg.Rand, b[:]); err != nil {
			return nil, err
		}
		name := ".holdfast-" + hex.EncodeToString(b[:]) + ".tmp"
		fd, err := unix.Openat(t.fd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case !errors.Is(err, os.ErrExist) && !errors.Is(err, syscall.EINTR) || try == 100:
			return nil, err
		}
	}
}

func mustBeDir(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	return err
}

// splitRaw and joinRaw take a path apart and together without cleaning it: a
// ".." after a symlink means what the kernel takes it for.
func splitRaw(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	switch {
	case i < 0:
		return ".", path
	case i == 0:
		return "/", path[1:]
	}
	return path[:i], path[i+1:]
}

func joinRaw(dir, name string) string {
	if dir == "/" {
		return dir + name
	}
	return dir + "/" + name
}
