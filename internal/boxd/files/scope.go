package files

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/paths"
	"github.com/holdfast-run/holdfast/internal/boxd/pattern"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// scope is a wire.Scope with its roots resolved. They are resolved at the first
// judgement: on a tool's thread, not where the request came in.
type scope struct {
	said wire.Scope
	// door has no scope itself.
	door    door
	masks   pattern.Masks
	bad     error // why the scope cannot be enforced
	located bool
	denied  []string
	within  [][]string
}

// Within is the FS for one request that a scope holds: reading, writing, editing,
// listing and searching refuse or leave out what does not lie in it, by where it
// really leads. It serves one request, and is not safe for concurrent use.
func (f *FS) Within(s wire.Scope) *FS {
	out := *f
	sc := &scope{said: s, door: f.door}
	sc.masks, sc.bad = pattern.CompileMasks(decoded(s.Patterns))
	out.door.scope = sc
	return &out
}

// decoded returns names of the protocol as bytes.
func decoded(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = DecodeName(n)
	}
	return out
}

// locate finds where the roots lead now.
func (s *scope) locate() {
	if s.located {
		return
	}
	s.located = true
	s.denied = s.roots(s.said.Denied, true)
	for _, list := range s.said.Within {
		s.within = append(s.within, s.roots(list, false))
	}
}

// roots are where rules lie; those that deny count as they are written, too.
func (s *scope) roots(rules []string, written bool) []string {
	out := []string{}
	for _, r := range rules {
		if r = filepath.Clean(DecodeName(r)); r == "/" {
			out = append(out, r) // whatever lies where
		}
		p := s.door.real(r)
		if at, err := located(p); err == nil {
			out = append(out, at)
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
	s.locate()
	under := func(root string) bool { return within(root, path) }
	if slices.ContainsFunc(s.denied, under) || s.masks.Cover(path) {
		return false
	}
	for _, list := range s.within {
		if !slices.ContainsFunc(list, under) {
			return false
		}
	}
	return true
}

// refusesName reports whether a path is refused as written, wherever it leads.
func (s *scope) refusesName(path string) bool {
	s.locate()
	return slices.ContainsFunc(s.denied, func(root string) bool { return within(root, path) }) || s.masks.Cover(path)
}

// deleted is the suffix that the kernel adds to the path of a removed file.
const deleted = " (deleted)"

func outOfScope(op, shown, real string) error {
	return holdfast.Errorf(holdfast.KindDenied, op, "%s leads to %s, which the sandbox settings or deny rules do not allow", holdfast.Quote(shown), holdfast.Quote(real))
}

// located returns where a path leads: links are followed as by the kernel, missing
// names are appended.
func located(path string) (string, error) {
	for range maxLinks {
		fd, err := paths.Open(path, paths.Way)
		if err == nil {
			at, err := paths.Where(fd)
			_ = unix.Close(fd)
			return at, err
		}
		if !errors.Is(err, syscall.ENOENT) || path == "/" {
			return "", err
		}
		above, name := paths.Split(path)
		at, err := located(above)
		if err != nil {
			return "", err
		}
		dir, err := paths.Open(at, paths.Way|unix.O_DIRECTORY)
		if err != nil {
			return paths.Join(at, name), nil // its directory is missing too
		}
		link, err := linkAt(dir, name)
		_ = unix.Close(dir)
		if err != nil {
			return paths.Join(at, name), nil // missing, not a link
		}
		if path = link; !strings.HasPrefix(link, "/") {
			path = paths.Join(at, link)
		}
	}
	return "", syscall.ELOOP
}
