package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/wire"
)

// scope is a wire.Scope, and its roots where they lie once located was called: by a
// tool's thread, not where the request came in.
type scope struct {
	said   wire.Scope
	denied []string
	within [][]string
}

// Within is the FS for one request that a scope holds: reading, writing, editing,
// listing and searching refuse or leave out what does not lie in it, by where it
// really leads. It serves one request, and is not safe for concurrent use.
func (f *FS) Within(s wire.Scope) *FS {
	out := *f
	out.scope = &scope{said: s}
	return &out
}

// roots are where rules lie; those that deny count as they are written, too.
func (f *FS) roots(rules []string, written bool) []string {
	out := []string{}
	for _, r := range rules {
		if r = filepath.Clean(DecodeName(r)); r == "/" {
			out = append(out, r) // whatever lies where
		}
		p := f.real(r)
		if real, err := physical(p); err == nil {
			out = append(out, real)
		}
		if written {
			out = append(out, p)
		}
	}
	return out
}

// holds reports whether a path without links lies in the scope.
func (s *scope) holds(path string) bool {
	if s == nil {
		return true
	}
	under := func(root string) bool { return within(root, path) }
	if slices.ContainsFunc(s.denied, under) {
		return false
	}
	for _, list := range s.within {
		if !slices.ContainsFunc(list, under) {
			return false
		}
	}
	return true
}

// located is where a path leads, which lies in the scope or is refused. Without a
// scope it is the path itself.
func (f *FS) located(op, shown, path string) (string, error) {
	if f.scope == nil {
		return path, nil
	}
	f.scope.denied, f.scope.within = f.roots(f.scope.said.Denied, true), nil
	for _, list := range f.scope.said.Within {
		f.scope.within = append(f.scope.within, f.roots(list, false))
	}
	real, err := physical(path)
	if err != nil {
		return "", fail(op, shown, err)
	}
	denied := func(root string) bool { return within(root, path) }
	if !f.scope.holds(real) || slices.ContainsFunc(f.scope.denied, denied) {
		return "", outOfScope(op, shown, f.shown(real))
	}
	return real, nil
}

func outOfScope(op, shown, real string) error {
	return holdfast.Errorf(holdfast.KindDenied, op, "%s leads to %s, which the sandbox settings do not allow", holdfast.Quote(shown), holdfast.Quote(real))
}

// physical is where a path leads: links followed as the kernel does, what is missing
// appended.
func physical(path string) (string, error) {
	for range maxLinks {
		real, err := filepath.EvalSymlinks(path)
		if err == nil {
			return real, nil
		}
		var known *fs.PathError
		switch {
		case !errors.As(err, &known):
			return "", syscall.ELOOP // the only error that has no path
		case !errors.Is(err, fs.ErrNotExist) || path == "/":
			return "", err
		}
		dir, name := splitRaw(path)
		if dir, err = physical(dir); err != nil {
			return "", err
		}
		path = joinRaw(dir, name)
		link, err := os.Readlink(path)
		if err != nil {
			return path, nil // missing, and no link
		}
		if path = link; !filepath.IsAbs(link) {
			path = joinRaw(dir, link)
		}
	}
	return "", syscall.ELOOP
}

// openPlainDir opens a directory by a path that has no links in it: a link that was
// put there meanwhile is refused, so that what is opened lies where it was located.
func openPlainDir(path string, flags int) (int, error) {
	fd, err := openRetry("/", onlyPath|unix.O_DIRECTORY|unix.O_CLOEXEC)
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	for i, name := range parts {
		how := onlyPath
		if i == len(parts)-1 {
			how = flags
		}
		if err != nil {
			return -1, err
		}
		next, nerr := openAtRetry(fd, name, how|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC)
		_ = unix.Close(fd)
		fd, err = next, nerr
	}
	if err != nil || len(parts) > 0 {
		return fd, err
	}
	_ = unix.Close(fd)
	return openRetry("/", flags|unix.O_DIRECTORY|unix.O_CLOEXEC)
}

func openAtRetry(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags, 0)
		if !errors.Is(err, syscall.EINTR) {
			return fd, err
		}
	}
}

// openLocated opens a regular file by a path that located gave.
func (f *FS) openLocated(op, shown, path string, flags int) (*file, error) {
	if f.scope == nil {
		return openRegular(op, shown, path, flags)
	}
	dir, name := splitRaw(path)
	fd, err := openPlainDir(dir, onlyPath)
	if err != nil {
		return nil, fail(op, shown, err)
	}
	defer unix.Close(fd)
	return openRegularAt(op, shown, fd, name, flags|unix.O_NOFOLLOW)
}

// renamed is a path below real as one below root.
func renamed(path, real, root string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(path, real), "/")
	if rest == "" || path == real {
		return root
	}
	return joinRaw(root, rest)
}
