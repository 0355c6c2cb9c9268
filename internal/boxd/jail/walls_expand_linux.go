package jail

import (
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Limits of the search for files that match patterns: the number of matching files, and of all entries
// that are looked at. If the search exceeds one, the box does not start.
const (
	maxMatches = 1_000
	maxVisited = 200_000
)

type expander struct {
	w        *walls
	patterns []globbed
	found    []match
	visited  int
}

type globbed struct {
	text     string
	kind     string
	segments []string
}

type match struct {
	path    string
	pattern globbed
}

// state is a position in a pattern: the index of the pattern, and of the segment that the next name of a path has to match.
type state struct{ pattern, segment int }

// expand requests a wall for every file that matches a pattern now. For files that appear later, only
// the file operations of boxd enforce the pattern.
func (w *walls) expand() error {
	x := &expander{w: w}
	for _, l := range []struct {
		kind  string
		globs []string
	}{{wire.WallMasked, w.spec.Patterns}, {wire.WallReadOnly, w.spec.WritePatterns}} {
		for _, g := range l.globs {
			x.patterns = append(x.patterns, globbed{g, l.kind, split(g)})
		}
	}
	if len(x.patterns) == 0 {
		return nil
	}
	for _, top := range x.tops() {
		if err := x.from(top); err != nil {
			return err
		}
	}
	for _, m := range x.found {
		if err := w.matched(m); err != nil {
			return err
		}
	}
	return nil
}

// matched requests a wall at the target of a file's path, because the path matches a pattern.
func (w *walls) matched(m match) error {
	if err := w.rule(m.path, m.pattern.kind, false); err != nil {
		return err
	}
	for _, n := range w.nodes {
		if n.rule == m.path {
			n.rule = m.pattern.text
		}
	}
	return nil
}

// tops returns the directories to search: the workspace, the home, and for each pattern the directory
// at its beginning that has no wildcards, if it is not in one of the others.
func (x *expander) tops() []string {
	out := x.w.grounds.lasting()
	for _, g := range x.patterns {
		top := "/"
		for _, s := range g.segments {
			if strings.ContainsAny(s, `*?[\`) {
				break
			}
			top = path.Join(top, s)
		}
		if top != "/" && !slices.ContainsFunc(out, func(t string) bool { return within(top, t) }) && !own(top) {
			out = append(out, top)
		}
	}
	return out
}

// from searches the directory top and everything below it for files that match a pattern.
func (x *expander) from(top string) error {
	states := []state{}
	for i := range x.patterns {
		states = append(states, state{i, 0})
	}
	states = x.close(states)
	for _, name := range split(top) {
		states, _ = x.next(states, name)
	}
	if len(states) == 0 {
		return nil
	}
	todo := []searched{{top, states}}
	for len(todo) > 0 {
		d := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		inner, err := x.search(d)
		if err != nil {
			return err
		}
		todo = append(todo, inner...)
	}
	return nil
}

// close adds, for each state at a "**", the state after it, because "**" also matches no directory at all.
func (x *expander) close(states []state) []state {
	for i := 0; i < len(states); i++ {
		s := states[i]
		segments := x.patterns[s.pattern].segments
		if after := (state{s.pattern, s.segment + 1}); s.segment < len(segments) && segments[s.segment] == "**" && !slices.Contains(states, after) {
			states = append(states, after)
		}
	}
	return states
}

// next returns the states after the name of a file or directory. If the path up to this name matches a pattern, ended
// is this pattern; if it matches several, one that masks takes precedence.
func (x *expander) next(states []state, name string) (out []state, ended *globbed) {
	for _, s := range states {
		g := &x.patterns[s.pattern]
		if s.segment >= len(g.segments) {
			continue
		}
		seg := g.segments[s.segment]
		to := state{s.pattern, s.segment + 1}
		if seg == "**" {
			to.segment = s.segment
		} else if ok, err := path.Match(seg, name); err != nil || !ok {
			continue
		}
		if !slices.Contains(out, to) {
			out = append(out, to)
		}
	}
	out = x.close(out)
	for _, s := range out {
		g := &x.patterns[s.pattern]
		if s.segment == len(g.segments) && (ended == nil || g.kind == wire.WallMasked) {
			ended = g
		}
	}
	return out, ended
}

// searched is a directory to search, with the states of the patterns that a path below it can still match.
type searched struct {
	dir    string
	states []state
}

// search adds the entries of a directory that match a pattern to x.found, and returns the directories
// in it that can contain other matches. It does not follow symlinks.
func (x *expander) search(d searched) ([]searched, error) {
	entries, err := x.entries(d.dir)
	if err != nil {
		return nil, x.failed(d.dir, err)
	}
	var inner []searched
	for _, e := range entries {
		if x.visited++; x.visited > maxVisited {
			return nil, x.tooMany("more than 200,000 files and directories would have to be searched")
		}
		next, ended := x.next(d.states, e.Name())
		p := path.Join(d.dir, e.Name())
		if ended != nil {
			if len(x.found) == maxMatches {
				return nil, x.tooMany("they match more than 1,000 files")
			}
			x.found = append(x.found, match{p, *ended})
			if ended.kind == wire.WallMasked {
				continue
			}
		}
		if len(next) > 0 && e.IsDir() {
			inner = append(inner, searched{p, next})
		}
	}
	return inner, nil
}

// entries returns the entries of a directory; none if the directory does not exist.
func (x *expander) entries(dir string) ([]os.DirEntry, error) {
	at, err := x.w.at(dir)
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(at)
	fd, err := unix.Openat(at, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == unix.ENOTDIR {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	list, err := f.ReadDir(maxVisited + 1)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	return list, err
}

// failed returns the error for a directory that cannot be read, if it is in the workspace, the home or a
// temporary directory. For other directories it returns nil: tools cannot read them either.
func (x *expander) failed(dir string, err error) error {
	if x.w.grounds.tree(dir) == "" {
		return nil
	}
	return holdfast.Errorf(holdfast.KindUnavailable, op, "the directory %s cannot be searched for files that match %s: %w",
		holdfast.Quote(dir), holdfast.Quote(x.patterns[0].text), err).WithHint("%s", fixRule)
}

func (x *expander) tooMany(why string) error {
	var texts []string
	for _, g := range x.patterns {
		texts = append(texts, g.text)
	}
	return holdfast.Errorf(holdfast.KindUnavailable, op, "the path patterns %s cannot be enforced: %s", holdfast.Quote(strings.Join(texts, ", ")), why).
		WithHint("name directories, as Read(/workspace/app/**/.env), or fixed paths, as Read(/workspace/secrets/**)")
}
