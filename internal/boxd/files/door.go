package files

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/paths"
)

// door turns a path of a request into an open file. Every operation resolves its paths and opens
// its files through it. It refuses files of /proc and files outside the request's scope.
type door struct {
	// workspace, home, base and proc are the fields of Config with these names.
	workspace, home, base string
	proc                  bool
	// scope is the set of files that one request may touch; nil allows all files.
	scope *scope
}

// resolve returns the path to open for a path of a request. It resolves ".." lexically, as
// editors do, so that "link/../x" is "x" wherever link points to.
func (d *door) resolve(op, p string) (string, error) {
	p = DecodeName(p)
	switch {
	case p == "":
		return "", holdfast.Errorf(holdfast.KindInvalid, op, "the path is empty")
	case strings.IndexByte(p, 0) >= 0:
		return "", holdfast.Errorf(holdfast.KindInvalid, op, "the path %s holds a NUL byte", holdfast.Quote(p))
	case len(p) > maxPath:
		return "", holdfast.Errorf(holdfast.KindInvalid, op, "the path %s has %d bytes, more than %d", holdfast.Quote(p), len(p), maxPath)
	case p == "~" || strings.HasPrefix(p, "~/"):
		p = filepath.Join(d.home, p[1:])
	case !filepath.IsAbs(p):
		p = filepath.Join(d.workspace, p)
	}
	return d.real(filepath.Clean(p)), nil
}

// resolveDir does the same as resolve, for operations in which an empty path means the workspace.
func (d *door) resolveDir(op, p string) (string, error) {
	if p == "" {
		p = "."
	}
	return d.resolve(op, p)
}

// real returns the path on this machine for a clean absolute path of a request: below base, if base is set.
func (d *door) real(p string) string {
	if d.base == "" || within(d.base, p) {
		return p
	}
	return filepath.Join(d.base, p)
}

// shown returns a path of this machine as requests name it: it is the inverse of real.
func (d *door) shown(p string) string {
	if d.base == "" || !within(d.base, p) {
		return p
	}
	if p = p[len(d.base):]; p == "" {
		return "/"
	}
	return p
}

// within reports whether the clean path p is dir or lies below it.
func within(dir, p string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}

// fixed refuses to remove or replace paths that the box needs: the root, the workspace, the home
// and their parents. name is the last name of the path, dir its open directory.
func (d *door) fixed(op, shown string, dir int, name string) error {
	at, err := paths.Where(dir)
	if err != nil {
		return fail(op, shown, err)
	}
	at = paths.Join(at, name)
	for _, r := range []string{d.workspace, d.home} {
		if r != "" && within(at, d.unlinked(d.real(filepath.Clean(r)))) {
			return holdfast.Errorf(holdfast.KindDenied, op, "cannot remove or replace %s: it is the root, the workspace or the home of the box, or a directory above them", holdfast.Quote(shown)).
				WithHint("name files inside the directory instead")
		}
	}
	return nil
}

// unlinked returns p with the symlinks of its parents resolved, or p itself if that fails.
func (d *door) unlinked(p string) string {
	above, name := paths.Split(p)
	fd, err := paths.Open(above, paths.Way|unix.O_DIRECTORY)
	if err != nil {
		return p
	}
	defer unix.Close(fd)
	at, err := paths.Where(fd)
	if err != nil {
		return p
	}
	return paths.Join(at, name)
}

// open opens the file that an absolute path leads to, below the box's "/" and through no magic
// link (of /proc). It refuses files in /proc and outside the scope. The check is made on the open
// file, so that no rename can come between check and use.
func (d *door) open(op, shown, path string, flags int) (int, error) {
	fd, err := paths.Open(path, flags)
	if err != nil {
		return -1, fail(op, shown, err)
	}
	if err := d.admit(op, shown, path, fd); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// admit returns an error for an open file in /proc or outside the scope.
func (d *door) admit(op, shown, path string, fd int) error {
	if err := d.notProc(op, shown, fd); err != nil {
		return err
	}
	if d.scope == nil {
		return nil
	}
	at, err := paths.Where(fd)
	if err != nil {
		return fail(op, shown, err)
	}
	return d.allowed(op, shown, path, at)
}

// notProc refuses a file of a procfs: through it a tool could read the descriptors, memory and
// environment of the process that serves file operations.
func (d *door) notProc(op, shown string, fd int) error {
	if d.proc {
		return nil
	}
	in, err := paths.InProc(fd)
	if err != nil {
		return fail(op, shown, err)
	}
	if in {
		return holdfast.Errorf(holdfast.KindDenied, op, "the path %s leads into /proc, which file operations do not open", holdfast.Quote(shown)).
			WithHint("read /proc with the tool Bash, as in: cat /proc/meminfo")
	}
	return nil
}

// parent opens the directory of the last name of path, and returns that name. The name may be
// missing or be a symlink, which is not followed. The checks for /proc and the scope are made on
// the directory instead of the name.
func (d *door) parent(op, shown, path string) (dir int, name string, err error) {
	above, name := paths.Split(path)
	dir, err = paths.Open(above, paths.Way|unix.O_DIRECTORY)
	if err != nil {
		return -1, "", fail(op, shown, err)
	}
	if err = d.notProc(op, shown, dir); err == nil && d.scope != nil {
		var at string
		if at, err = paths.Where(dir); err == nil {
			err = d.allowed(op, shown, path, paths.Join(at, name))
		}
	}
	if err != nil {
		_ = unix.Close(dir)
		return -1, "", fail(op, shown, err)
	}
	return dir, name, nil
}

// openRegular opens a regular file, following symlinks, and never blocks: it refuses a FIFO,
// socket or device without opening it for use.
func (d *door) openRegular(op, shown, path string, flags int) (*file, error) {
	return regular(op, shown, flags, func(flags int) (int, error) { return d.open(op, shown, path, flags) })
}

// allowed returns an error if a file is outside the scope. path is the path as requested, at the
// real path of the file that was found.
func (d *door) allowed(op, shown, path, at string) error {
	if d.scope.bad != nil {
		return d.scope.bad
	}
	d.scope.locate()
	if d.scope.ofAgent(path) || d.scope.ofAgent(strings.TrimSuffix(at, deleted)) {
		return ofAgent(op, shown, d.shown(at))
	}
	if d.scope.refusesName(path) || !d.scope.holds(at) || !d.scope.holds(strings.TrimSuffix(at, deleted)) {
		return outOfScope(op, shown, d.shown(at))
	}
	return nil
}

// below returns where an open file lies below the workspace; empty if it lies elsewhere or its path is not text.
func (d *door) below(fd int) (string, error) {
	at, err := paths.Where(fd)
	if err != nil {
		return "", err
	}
	top, err := located(d.real(filepath.Clean(d.workspace)))
	if err != nil {
		return "", err
	}
	rel, ok := strings.CutPrefix(at, top+"/")
	if !ok || !utf8.ValidString(rel) || strings.HasSuffix(rel, deleted) {
		return "", nil
	}
	return rel, nil
}

// exists reports whether a path leads to a file that file operations may open.
func (d *door) exists(path string) bool {
	fd, err := d.open("stat", path, path, paths.Way)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}

// changing does the same as parent, for a name that is to be removed or replaced: it also refuses
// paths that the box needs.
func (d *door) changing(op, shown, path string) (dir int, name string, err error) {
	if dir, name, err = d.parent(op, shown, path); err != nil {
		return dir, name, err
	}
	if err = d.fixed(op, shown, dir, name); err != nil {
		_ = unix.Close(dir)
	}
	return dir, name, err
}

// mkdirAll makes a directory and its parents where the scope allows it. Each is flushed to disk
// in its parent.
func (d *door) mkdirAll(op, shown, path string) error {
	err := paths.IsDir(path)
	if err == nil || !errors.Is(err, syscall.ENOENT) {
		return err
	}
	above, _ := paths.Split(path)
	if above == path {
		return err
	}
	if err := d.mkdirAll(op, shown, above); err != nil {
		return err
	}
	dir, name, err := d.parent(op, shown, path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := unix.Mkdirat(dir, name, 0o777); err != nil {
		if errors.Is(err, syscall.EEXIST) {
			// Another process made it meanwhile, or the name is a symlink that points nowhere.
			return paths.IsDir(path)
		}
		return err
	}
	return syncAt(dir)
}
