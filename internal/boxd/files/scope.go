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

// scope is a wire.Scope with its roots resolved. They are resolved at the first check, which runs
// on the tools' thread, and not where the request arrives.
type scope struct {
	said wire.Scope
	// door resolves the scope's roots. Its own scope is nil, so that it allows all paths.
	door    door
	masks   pattern.Masks
	bad     error // if not nil, why the scope cannot be enforced: every path is refused
	located bool
	denied  []string
	within  [][]string
	agents  []string
}

// Within returns an FS for one request, limited to the files of a scope: reading, writing,
// editing, listing and searching refuse or leave out files outside it. A file is judged by its
// real path, with links resolved. The FS serves one request and is not safe for concurrent use.
func (f *FS) Within(s wire.Scope) *FS {
	out := *f
	sc := &scope{said: s, door: f.door}
	sc.masks, sc.bad = pattern.CompileMasks(decoded(s.Patterns))
	for _, a := range decoded(s.Agents) {
		if !filepath.IsLocal(a) || filepath.Clean(a) == "." {
			sc.bad = holdfast.Errorf(holdfast.KindInvalid, "boxd", "the agent directory %s of a file scope is not a relative path below the home", holdfast.Quote(a))
		}
	}
	out.door.scope = sc
	return &out
}

// decoded returns names of the protocol as raw bytes.
func decoded(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = DecodeName(n)
	}
	return out
}

// locate resolves the real paths of the scope's roots; once per request.
func (s *scope) locate() {
	if s.located {
		return
	}
	s.located = true
	s.denied = s.roots(s.said.Denied, true)
	for _, list := range s.said.Within {
		s.within = append(s.within, s.roots(list, false))
	}
	home := s.door.real(filepath.Clean(s.door.home))
	if at, err := located(home); err == nil {
		home = at
	}
	for _, a := range decoded(s.said.Agents) {
		s.agents = append(s.agents, filepath.Join(home, a))
	}
}

// ofAgent reports whether a path lies in the directory of an agent.
func (s *scope) ofAgent(path string) bool {
	return slices.ContainsFunc(s.agents, func(dir string) bool { return within(dir, path) })
}

// roots returns the real paths of rules; if written is true, also the paths as they are written.
func (s *scope) roots(rules []string, written bool) []string {
	out := []string{}
	for _, r := range rules {
		if r = filepath.Clean(DecodeName(r)); r == "/" {
			out = append(out, r) // the root "/" includes every file, even those outside of base
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

// holds reports whether the scope allows a real path (without symlinks).
func (s *scope) holds(path string) bool {
	if s == nil {
		return true
	}
	s.locate()
	under := func(root string) bool { return within(root, path) }
	if slices.ContainsFunc(s.denied, under) || s.masks.Cover(path) || s.ofAgent(path) {
		return false
	}
	for _, list := range s.within {
		if !slices.ContainsFunc(list, under) {
			return false
		}
	}
	return true
}

// refusesName reports whether the scope denies a path as it is written, wherever it leads.
func (s *scope) refusesName(path string) bool {
	s.locate()
	return slices.ContainsFunc(s.denied, func(root string) bool { return within(root, path) }) || s.masks.Cover(path) || s.ofAgent(path)
}

// deleted is the suffix that the kernel adds to the path of a removed file.
const deleted = " (deleted)"

func outOfScope(op, shown, real string) error {
	return holdfast.Errorf(holdfast.KindDenied, op, "the path %s leads to %s, which the sandbox settings or deny rules do not allow", holdfast.Quote(shown), holdfast.Quote(real))
}

func ofAgent(op, shown, at string) error {
	return holdfast.Errorf(holdfast.KindDenied, op, "the path %s leads to %s, where an agent keeps its configuration and its conversations: file tools and the files API do not open it", holdfast.Quote(shown), holdfast.Quote(at)).
		WithHint("a command in the box can open the path")
}

// located returns the real path that a path leads to: symlinks are followed as the kernel does,
// and names that do not exist are appended.
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
			return paths.Join(at, name), nil // the directory of the name is missing too
		}
		link, err := linkAt(dir, name)
		_ = unix.Close(dir)
		if err != nil {
			return paths.Join(at, name), nil // the name is missing, or is no symlink
		}
		if path = link; !strings.HasPrefix(link, "/") {
			path = paths.Join(at, link)
		}
	}
	return "", syscall.ELOOP
}
