package files

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/wire"
)

const (
	defaultGlob = 1000
	maxGlob     = 10_000
	// trimGlob is how many bytes of paths are held before the oldest are dropped.
	trimGlob = 2 << 20
)

// Glob finds files and symlinks, newest first, then by path. The pattern is
// relative to Path (empty: the workspace), or absolute, or begins with "~/".
// "*" matches hidden names too; ".git" is entered only by a pattern that names
// it; symlinked directories are not followed. A limit of 0 is 1000, at most 10,000.
func (f *FS) Glob(req wire.GlobRequest) (wire.GlobAnswer, error) {
	const op = "file.glob"
	ans := wire.GlobAnswer{Paths: []string{}}
	limit, err := limitOf(op, req.Limit, defaultGlob, maxGlob)
	if err != nil {
		return ans, err
	}
	root, err := f.resolveDir(op, req.Path)
	if err != nil {
		return ans, err
	}
	if err := mustBeDir(root); err != nil {
		return ans, fail(op, req.Path, err)
	}
	prefix, rest := splitPattern(DecodeName(req.Pattern))
	p, err := compilePattern(op, rest)
	if err != nil {
		return ans, err
	}
	switch {
	case prefix == "":
	case filepath.IsAbs(prefix) || prefix == "~" || strings.HasPrefix(prefix, "~/"):
		root, err = f.resolve(op, EncodeName(prefix))
	default:
		root, err = f.resolve(op, EncodeName(filepath.Join(f.shown(root), prefix)))
	}
	if err != nil {
		return ans, err
	}
	real, err := f.located(op, req.Path, root)
	if err != nil {
		return ans, err
	}
	g := &globber{walk: f.newWalk(), pattern: p, limit: limit, git: strings.Contains(rest, ".git"), scope: f.scope}
	if err := g.dir(real, p.start()); err != nil && !holdfast.IsKind(fail(op, "", err), holdfast.KindNotFound) {
		return ans, fail(op, req.Pattern, err)
	}
	g.trim()
	for _, h := range g.hits {
		ans.Paths = append(ans.Paths, EncodeName(f.shown(renamed(h.path, real, root))))
	}
	ans.Truncated = g.truncated
	return ans, nil
}

// splitPattern takes the leading components without wildcards off a pattern.
func splitPattern(s string) (prefix, rest string) {
	rest = s
	for {
		part, after, found := strings.Cut(rest, "/")
		if !found || hasMeta(part) || strings.Trim(after, "/") == "" {
			break
		}
		prefix += part + "/"
		rest = after
	}
	if len(prefix) > 1 {
		prefix = strings.TrimSuffix(prefix, "/")
	}
	return prefix, rest
}

type hit struct {
	path string
	time time.Time
}

type globber struct {
	*walk
	pattern *pattern
	limit   int
	git     bool
	scope   *scope
	hits    []hit
	bytes   int
}

// dir searches one directory. Only the first directory's error is told; what
// cannot be read below it is passed over, as find does without its messages.
func (g *globber) dir(path string, at []place) error {
	entries, err := g.entries(path)
	if err != nil {
		return err
	}
	defer g.done(entries)
	for _, e := range entries {
		if g.late() {
			return nil
		}
		next, matched := g.pattern.step(at, e.name)
		child := joinRaw(path, e.name)
		switch {
		case !g.scope.holds(child):
		case e.typ.IsDir():
			if len(next) == 0 || e.name == ".git" && !g.git {
				continue
			}
			if err := g.dir(child, next); err != nil && len(child) >= maxPath {
				g.truncated = true
			}
		case matched && (e.typ.IsRegular() || e.typ&os.ModeSymlink != 0):
			g.hit(child)
		}
	}
	return nil
}

func (g *globber) hit(path string) {
	info, err := os.Lstat(path)
	if err != nil {
		return
	}
	g.hits = append(g.hits, hit{path, info.ModTime()})
	g.bytes += len(path)
	if len(g.hits) > 2*g.limit+dirBatch || g.bytes > trimGlob {
		g.trim()
	}
}

// trim sorts and keeps what fits the limit and one answer.
func (g *globber) trim() {
	slices.SortFunc(g.hits, func(a, b hit) int {
		if c := b.time.Compare(a.time); c != 0 {
			return c
		}
		return strings.Compare(a.path, b.path)
	})
	g.bytes = 0
	left := answerBytes
	for i, h := range g.hits {
		if left -= jsonLen(EncodeName(h.path)) + 1; left < 0 || i == g.limit {
			g.hits = slices.Clone(g.hits[:i])
			g.truncated = true
			break
		}
		g.bytes += len(h.path)
	}
}
