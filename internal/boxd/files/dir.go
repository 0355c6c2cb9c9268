package files

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/wire"
)

const (
	defaultList = 1000
	maxList     = 10_000
	// dirBatch is how many entries are read from a directory at a time.
	dirBatch = 512
)

// List lists a directory, sorted by name. Of a directory with more entries than
// the limit (0 is 1000, at most 10,000) or than fit a frame it answers the first.
func (f *FS) List(req wire.ListRequest) (wire.ListAnswer, error) {
	const op = "file.list"
	ans := wire.ListAnswer{Entries: []wire.FileInfo{}}
	limit, err := limitOf(op, req.Limit, defaultList, maxList)
	if err != nil {
		return ans, err
	}
	path, err := f.resolveDir(op, req.Path)
	if err != nil {
		return ans, err
	}
	real, err := f.located(op, req.Path, path)
	if err != nil {
		return ans, err
	}
	names, more, err := firstNames(real, limit)
	if err != nil {
		if errors.Is(err, syscall.ENOTDIR) {
			if _, serr := os.Stat(path); serr == nil {
				return ans, holdfast.Errorf(holdfast.KindInvalid, op, "%s is not a directory", holdfast.Quote(req.Path))
			}
		}
		return ans, fail(op, req.Path, err)
	}
	ans.Truncated = more
	left := answerBytes
	for _, name := range names {
		child := joinRaw(real, name)
		if !f.scope.holds(child) {
			continue
		}
		info, err := os.Lstat(child)
		if err != nil {
			continue // it went away meanwhile
		}
		e := describe(child, name, info)
		if left -= jsonLen(e.Path) + jsonLen(e.Target) + 200; left < 0 {
			ans.Truncated = true
			break
		}
		ans.Entries = append(ans.Entries, e)
	}
	return ans, nil
}

// firstNames are the first limit names of a directory in order, in memory
// bounded by the limit however many there are.
func firstNames(path string, limit int) (names []string, more bool, err error) {
	d, err := openDir(path)
	if err != nil {
		return nil, false, err
	}
	defer d.Close()
	for {
		batch, err := d.Readdirnames(dirBatch)
		names = append(names, batch...)
		if len(names) > 2*limit+dirBatch {
			slices.Sort(names)
			names, more = slices.Clone(names[:limit]), true
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, false, err
		}
	}
	slices.Sort(names)
	if len(names) > limit {
		names, more = names[:limit], true
	}
	return names, more, nil
}

// limitOf checks a limit of a request.
func limitOf(op string, n, def, most int) (int, error) {
	switch {
	case n < 0:
		return 0, holdfast.Errorf(holdfast.KindInvalid, op, "limit %d is negative", n)
	case n == 0:
		return def, nil
	}
	return min(n, most), nil
}

// Remove removes a file, a symlink itself, an empty directory, or with
// Recursive a tree, whose symlinks are not followed.
func (f *FS) Remove(req wire.RemoveRequest) error {
	const op = "file.remove"
	path, err := f.resolve(op, req.Path)
	if err != nil {
		return err
	}
	if err := f.fixed(op, req.Path, path); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return fail(op, req.Path, err)
	}
	if req.Recursive {
		err = os.RemoveAll(path)
	} else {
		err = os.Remove(path)
	}
	if errors.Is(err, syscall.ENOTEMPTY) && info.IsDir() && !req.Recursive {
		return holdfast.Errorf(holdfast.KindConflict, op, "the directory %s is not empty", holdfast.Quote(req.Path)).
			WithHint("remove it recursively")
	}
	if err != nil {
		return fail(op, req.Path, err)
	}
	return after(op, req.Path, syncDir(filepath.Dir(path)))
}

// Mkdir makes a directory and its parents; an existing one is fine.
func (f *FS) Mkdir(req wire.MkdirRequest) error {
	const op = "file.mkdir"
	path, err := f.resolve(op, req.Path)
	if err != nil {
		return err
	}
	if err := mkdirAll(path); err != nil {
		if info, serr := os.Lstat(path); serr == nil && !info.IsDir() {
			return holdfast.Errorf(holdfast.KindConflict, op, "%s exists and is not a directory", holdfast.Quote(req.Path))
		}
		return fail(op, req.Path, err)
	}
	return nil
}

// Rename renames a file, symlink or directory as rename(2) does: an existing
// file in its place is replaced, an existing non-empty directory is conflict.
func (f *FS) Rename(req wire.RenameRequest) error {
	const op = "file.rename"
	from, err := f.resolve(op, req.From)
	if err != nil {
		return err
	}
	to, err := f.resolve(op, req.To)
	if err != nil {
		return err
	}
	if err := f.fixed(op, req.From, from); err != nil {
		return err
	}
	if err := f.fixed(op, req.To, to); err != nil {
		return err
	}
	if _, err := os.Lstat(from); err != nil {
		return fail(op, req.From, err)
	}
	if err := os.Rename(from, to); err != nil {
		var le *os.LinkError
		if errors.As(err, &le) {
			err = le.Err
		}
		return fail(op, req.To, err)
	}
	if err := after(op, req.To, syncDir(filepath.Dir(to))); err != nil {
		return err
	}
	if filepath.Dir(from) != filepath.Dir(to) {
		return after(op, req.From, syncDir(filepath.Dir(from)))
	}
	return nil
}

// after is for the fsync that follows a change: a directory that went away
// meanwhile has nothing left to make durable.
func after(op, shown string, err error) error {
	if err == nil || errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EACCES) {
		return nil
	}
	return fail(op, shown, err)
}

// mkdirAll makes a directory and its parents, each durable in its parent.
func mkdirAll(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return syscall.ENOTDIR
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	parent := filepath.Dir(path)
	if parent == path || !strings.HasPrefix(path, parent) {
		return err
	}
	if err := mkdirAll(parent); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		if errors.Is(err, os.ErrExist) {
			// Somebody made it meanwhile, or a symlink points nowhere.
			return mustBeDir(path)
		}
		return err
	}
	return syncDir(parent)
}
