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

// door turns a path of a request into an open file or directory. It refuses files of /proc, unless
// proc is set, and files outside the scope of the request.
type door struct {
	// workspace, home, base and proc are the fields of Config with these names.
	workspace, home, base string
	proc                  bool
	// scope is the set of files that one request may touch; nil allows all files.
	scope *scope
}

// resolve returns the path of this machine that a path of a request stands for. It removes ".." from
// the text of the path, as editors do: "link/../x" becomes "x", even if link is a symlink to
// another directory.
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

// resolveDir does the same as resolve, but an empty path means the workspace.
func (d *door) resolveDir(op, p string) (string, error) {
	if p == "" {
		p = "."
	}
	return d.resolve(op, p)
}

// real returns the path on this machine for a clean absolute path of a request: if base is set, the path below base,
// unless it lies below base already.
func (d *door) real(p string) string {
	if d.base == "" || within(d.base, p) {
		return p
	}
	return filepath.Join(d.base, p)
}

// shown does the reverse of real: it returns the path by which requests name a path of this machine.
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

// fixed returns an error if a path may not be removed or replaced: the root, the workspace, the home
// and the directories above them. name is the last name of the path, dir the open directory that
// contains it.
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

// unlinked returns p with all symlinks resolved except the last name, or p itself if that fails.
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

// open opens the file that an absolute path leads to, below the box's "/" and through no magic link
// of /proc. It refuses files in /proc (unless proc is set) and files outside the scope. It checks
// the open file, so that no process can replace the file between the check and its use.
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

// admit returns an error if an open file is in /proc (unless proc is set) or outside the scope.
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

// notProc returns an error if an open file is in a procfs, unless d.proc is set: such files show the
// descriptors, memory and environment of boxd, which serves the file operations.
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

// parent opens the directory that contains the last name of path, and returns this name. The name
// need not exist; if it is a symlink, it is not followed. parent returns an error if the directory
// is in /proc (unless d.proc is set), or if the name in this directory is outside the scope.
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

// openRegular opens a regular file and follows symlinks. It refuses a FIFO, socket or device before
// it opens it for reading or writing, so it does not block.
func (d *door) openRegular(op, shown, path string, flags int) (*file, error) {
	return regular(op, shown, flags, func(flags int) (int, error) { return d.open(op, shown, path, flags) })
}

// allowed returns an error if a file is outside the scope. path is the path that the request leads
// to before symlinks are resolved; at is the real path of the file.
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

// below returns the path of an open file, relative to the workspace. It returns "" if the file is not below
// the workspace or was removed, or if the path is not valid UTF-8.
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

// changing does the same as parent, for a name that is to be removed or replaced: it also returns an
// error if the path may not be removed (see fixed).
func (d *door) changing(op, shown, path string) (dir int, name string, err error) {
	if dir, name, err = d.parent(op, shown, path); err != nil {
		return dir, name, err
	}
	if err = d.fixed(op, shown, dir, name); err != nil {
		_ = unix.Close(dir)
	}
	return dir, name, err
}

// mkdirAll makes a directory and those of its parents that are missing, if the scope allows it. It
// flushes the parent of each new directory to disk.
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
			// Another process has made the directory, or the name is a symlink to a path that does not exist.
			return paths.IsDir(path)
		}
		return err
	}
	return syncAt(dir)
}
