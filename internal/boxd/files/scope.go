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

// scope is a wire.Scope with its roots resolved to real paths. The first check resolves them,
// because it runs on a thread with the rights of a tool; the code that receives the request does not.
type scope struct {
	said wire.Scope
	// door resolves the roots. Its own scope is nil, so it allows all paths.
	door    door
	masks   pattern.Masks
	bad     error // if not nil, the scope is invalid: every path is refused with this error
	located bool
	denied  []string
	within  [][]string
	agents  []string
}

// Within returns an FS for one request that is limited to the files of a scope: an operation on a
// file outside the scope is refused, and listings and searches leave such files out. The checks use
// the real path of a file, with its symlinks resolved; deny rules also apply to the path as the
// request has it. The FS is not safe for concurrent use.
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

// decoded returns the names that EncodeName encoded.
func decoded(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = DecodeName(n)
	}
	return out
}

// locate resolves the roots of the scope to real paths, in its first call only.
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

// ofAgent reports whether a path is in one of the directories in which agents keep their own files.
func (s *scope) ofAgent(path string) bool {
	return slices.ContainsFunc(s.agents, func(dir string) bool { return within(dir, path) })
}

// roots returns the real paths of the paths in rules. If written is true, it also returns the paths with their
// symlinks unresolved.
func (s *scope) roots(rules []string, written bool) []string {
	out := []string{}
	for _, r := range rules {
		if r = filepath.Clean(DecodeName(r)); r == "/" {
			out = append(out, r) // the rule "/" covers every file, also files that are not below door.base
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

// holds reports whether the scope allows a file. path is the real path of the file, without symlinks.
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

// refusesName reports whether a rule denies the text of a path. It does not look where the path leads.
func (s *scope) refusesName(path string) bool {
	s.locate()
	return slices.ContainsFunc(s.denied, func(root string) bool { return within(root, path) }) || s.masks.Cover(path) || s.ofAgent(path)
}

// deleted is the suffix that the kernel adds to the path of an open file that was removed.
const deleted = " (deleted)"

func outOfScope(op, shown, real string) error {
	return holdfast.Errorf(holdfast.KindDenied, op, "the path %s leads to %s, which the sandbox settings or deny rules do not allow", holdfast.Quote(shown), holdfast.Quote(real))
}

func ofAgent(op, shown, at string) error {
	return holdfast.Errorf(holdfast.KindDenied, op, "the path %s leads to %s, where an agent keeps its configuration and its conversations: file tools and the files API do not open it", holdfast.Quote(shown), holdfast.Quote(at)).
		WithHint("a command in the box can open the path")
}

// located returns the real path that a path leads to. It follows symlinks, as the kernel does. The
// names at the end of the path that do not exist stay as they are.
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
			return paths.Join(at, name), nil // the directory that should contain name does not exist either
		}
		link, err := linkAt(dir, name)
		_ = unix.Close(dir)
		if err != nil {
			return paths.Join(at, name), nil // the name does not exist, or it is not a symlink
		}
		if path = link; !strings.HasPrefix(link, "/") {
			path = paths.Join(at, link)
		}
	}
	return "", syscall.ELOOP
}
