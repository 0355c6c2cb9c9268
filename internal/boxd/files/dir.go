package files

import (
	"errors"
	"io"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/paths"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// defaultLimit and maxLimit are how many entries, files or matches one answer has.
	defaultLimit = 1000
	maxLimit     = 10_000
	// dirBatch is how many entries are read from a directory at a time.
	dirBatch = 512
)

// List lists a directory, sorted by name. If the directory has more entries than the limit (0
// means 1000, at most 10,000) or than fit a frame, it returns the first ones.
func (f *FS) List(req wire.ListRequest) (wire.ListAnswer, error) {
	const op = "file.list"
	ans := wire.ListAnswer{Entries: []wire.FileInfo{}}
	limit, err := limitOf(op, req.Limit)
	if err != nil {
		return ans, err
	}
	path, err := f.door.resolveDir(op, req.Path)
	if err != nil {
		return ans, err
	}
	w := f.newWalk()
	defer w.end()
	if err := w.begin(op, req.Path, path); err != nil {
		if errors.Is(err, syscall.ENOTDIR) && f.door.exists(path) {
			err = holdfast.Errorf(holdfast.KindInvalid, op, "the path %s is not a directory", holdfast.Quote(req.Path))
		}
		return ans, err
	}
	names, more, err := firstNames(w.top, limit)
	if err != nil {
		return ans, fail(op, req.Path, err)
	}
	ans.Truncated = more
	left := answerBytes
	for _, name := range names {
		if !w.holds(name) {
			continue
		}
		st, err := statAt(w.top, name)
		if err != nil {
			continue // the entry was removed meanwhile
		}
		e := describe(name, &st, func() (string, error) { return linkAt(w.top, name) })
		if left -= jsonLen(e.Path) + jsonLen(e.Target) + 200; left < 0 {
			ans.Truncated = true
			break
		}
		ans.Entries = append(ans.Entries, e)
	}
	return ans, nil
}

// firstNames returns the first limit names of an open directory, sorted. The limit bounds its
// memory, however many names the directory has.
func firstNames(dir, limit int) (names []string, more bool, err error) {
	l := &lister{fd: dir}
	for {
		batch, err := l.next()
		if err != nil {
			return nil, false, err
		}
		for _, e := range batch {
			names = append(names, e.name)
		}
		if len(names) > 2*limit+dirBatch {
			slices.Sort(names)
			names, more = slices.Clone(names[:limit]), true
		}
		if len(batch) == 0 {
			break
		}
	}
	slices.Sort(names)
	if len(names) > limit {
		names, more = names[:limit], true
	}
	return names, more, nil
}

// limitOf checks the limit of a request: 0 means defaultLimit, more than maxLimit is cut to it.
func limitOf(op string, n int) (int, error) {
	switch {
	case n < 0:
		return 0, holdfast.Errorf(holdfast.KindInvalid, op, "the limit %d of results is negative", n)
	case n == 0:
		return defaultLimit, nil
	}
	return min(n, maxLimit), nil
}

// Remove removes a file, a symlink itself, or an empty directory; if Recursive is set, a whole
// tree, without following its symlinks.
func (f *FS) Remove(req wire.RemoveRequest) error {
	const op = "file.remove"
	path, err := f.door.resolve(op, req.Path)
	if err != nil {
		return err
	}
	dir, name, err := f.door.changing(op, req.Path, path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	st, err := statAt(dir, name)
	if err != nil {
		return fail(op, req.Path, err)
	}
	isDir := kindOfMode(uint32(st.Mode)) == kindDir
	if isDir && req.Recursive && f.door.scope != nil {
		at, err := paths.Where(dir)
		if err != nil {
			return fail(op, req.Path, err)
		}
		for _, dir := range f.door.scope.agents {
			if within(paths.Join(at, name), dir) && f.door.scope.door.exists(dir) {
				return ofAgent(op, req.Path, f.door.shown(dir))
			}
		}
	}
	if req.Recursive {
		err = removeTree(dir, name)
	} else {
		err = removeOne(dir, name, isDir)
	}
	if errors.Is(err, syscall.ENOTEMPTY) && isDir && !req.Recursive {
		return holdfast.Errorf(holdfast.KindConflict, op, "the directory %s is not empty", holdfast.Quote(req.Path)).
			WithHint("remove the directory recursively")
	}
	if err != nil {
		return fail(op, req.Path, err)
	}
	return after(op, req.Path, syncAt(dir))
}

func removeOne(dir int, name string, isDir bool) error {
	flags := 0
	if isDir {
		flags = unix.AT_REMOVEDIR
	}
	return unix.Unlinkat(dir, name, flags)
}

// removeTree removes a name of an open directory and everything below it. A name that vanishes
// meanwhile is not an error. Symlinks are removed, never followed.
func removeTree(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || errors.Is(err, syscall.ENOENT) {
		return nil
	}
	rmErr := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	switch {
	case rmErr == nil || errors.Is(rmErr, syscall.ENOENT):
		return nil
	case errors.Is(rmErr, syscall.ENOTDIR):
		return err
	}
	fd, err := paths.At(dir, name, toList, 0)
	if err != nil {
		return rmErr
	}
	defer unix.Close(fd)
	for {
		n, err := removeSome(fd)
		if n == 0 {
			if rmErr = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); rmErr == nil || errors.Is(rmErr, syscall.ENOENT) {
				return nil
			}
			return errors.Join(err, rmErr)
		}
		if _, err := unix.Seek(fd, 0, io.SeekStart); err != nil {
			return err
		}
	}
}

// removeSome removes the first entries of an open directory, and returns how many it
// removed.
func removeSome(dir int) (n int, first error) {
	l := &lister{fd: dir}
	var names []string
	for len(names) < 2*dirBatch {
		batch, err := l.next()
		if err != nil || len(batch) == 0 {
			first = err
			break
		}
		for _, e := range batch {
			names = append(names, e.name)
		}
	}
	for _, name := range names {
		if err := removeTree(dir, name); err == nil {
			n++
		} else if first == nil {
			first = err
		}
	}
	return n, first
}

// Mkdir makes a directory and its parents. If the directory exists, it succeeds.
func (f *FS) Mkdir(req wire.MkdirRequest) error {
	const op = "file.mkdir"
	path, err := f.door.resolve(op, req.Path)
	if err != nil {
		return err
	}
	// An existing path is checked against the scope too; mkdirAll checks only directories it makes.
	if fd, err := f.door.open(op, req.Path, path, paths.Way); err == nil {
		_ = unix.Close(fd)
	} else if holdfast.IsKind(err, holdfast.KindDenied) {
		return err
	}
	if err := f.door.mkdirAll(op, req.Path, path); err != nil {
		if !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, syscall.EEXIST) {
			return fail(op, req.Path, err)
		}
		if fd, oerr := f.door.open(op, req.Path, path, paths.Way|unix.O_NOFOLLOW); oerr == nil {
			_ = unix.Close(fd)
			return holdfast.Errorf(holdfast.KindConflict, op, "the path %s exists and is not a directory", holdfast.Quote(req.Path))
		}
		return fail(op, req.Path, err)
	}
	return nil
}

// Rename renames a file, symlink or directory as rename(2) does: it replaces an existing file at
// the new path, and returns conflict for an existing directory that is not empty.
func (f *FS) Rename(req wire.RenameRequest) error {
	const op = "file.rename"
	from, err := f.door.resolve(op, req.From)
	if err != nil {
		return err
	}
	to, err := f.door.resolve(op, req.To)
	if err != nil {
		return err
	}
	fromDir, fromName, err := f.door.changing(op, req.From, from)
	if err != nil {
		return err
	}
	defer unix.Close(fromDir)
	toDir, toName, err := f.door.changing(op, req.To, to)
	if err != nil {
		return err
	}
	defer unix.Close(toDir)
	if _, err := statAt(fromDir, fromName); err != nil {
		return fail(op, req.From, err)
	}
	if err := unix.Renameat(fromDir, fromName, toDir, toName); err != nil {
		return fail(op, req.To, err)
	}
	if err := after(op, req.To, syncAt(toDir)); err != nil {
		return err
	}
	if filepath.Dir(from) != filepath.Dir(to) {
		return after(op, req.From, syncAt(fromDir))
	}
	return nil
}

// after turns the result of the fsync that follows a change into the operation's error: if the
// directory was removed meanwhile, nothing is left to make durable.
func after(op, shown string, err error) error {
	if err == nil || errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EACCES) {
		return nil
	}
	return fail(op, shown, err)
}
