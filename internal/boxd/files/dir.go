package files

import (
	"errors"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/paths"
	"github.com/holdfast-run/holdfast/internal/tree"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// An answer has at most defaultLimit entries, files or matches if its request names no limit, and
	// at most maxLimit in any case.
	defaultLimit = 1000
	maxLimit     = 10_000
	// dirBatch is how many entries more than twice the limit are collected before the list is cut to the limit.
	dirBatch = 512
)

// List lists the entries of a directory, sorted by name. If the directory has more entries than the
// limit, or more than fit one frame, List returns the first of them and sets Truncated. The limit 0
// means 1000; a limit above 10,000 means 10,000. Entries outside the scope are left out.
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
			continue // the entry was removed since its name was read
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

// firstNames returns the names of an open directory that come first in sorted order, at most limit.
// more is true if there are others. It never holds many more names than twice the limit in memory.
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

// limitOf returns the limit of a request: defaultLimit for 0, and at most maxLimit. A negative limit is an error.
func limitOf(op string, n int) (int, error) {
	switch {
	case n < 0:
		return 0, holdfast.Errorf(holdfast.KindInvalid, op, "the limit %d of results is negative", n)
	case n == 0:
		return defaultLimit, nil
	}
	return min(n, maxLimit), nil
}

// Remove removes a file or an empty directory; if Recursive is set, a directory with everything in
// it. It removes symlinks, not their targets.
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
		err = tree.RemoveAll(dir, name)
	} else {
		err = removeOne(dir, name, isDir)
	}
	if errors.Is(err, syscall.ENOTEMPTY) && isDir && !req.Recursive {
		return holdfast.Errorf(holdfast.KindConflict, op, "the directory %s is not empty", holdfast.Quote(req.Path)).
			WithHint("set recursive to remove it with all that is in it: holdfast files rm -r SESSION PATH")
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

// Mkdir makes a directory and its parents. If the directory exists, it succeeds.
func (f *FS) Mkdir(req wire.MkdirRequest) error {
	const op = "file.mkdir"
	path, err := f.door.resolve(op, req.Path)
	if err != nil {
		return err
	}
	// Check a path that exists against the scope here: mkdirAll checks only the directories that it makes.
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

// Rename renames a file, symlink or directory as rename(2) does: it replaces a file at the new path,
// and returns conflict if a directory that is not empty is at the new path.
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

// after takes the result of the fsync that follows a change, and returns the error of the operation.
// It ignores an error that means that the directory was removed meanwhile or may not be read.
func after(op, shown string, err error) error {
	if err == nil || errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EACCES) {
		return nil
	}
	return fail(op, shown, err)
}
