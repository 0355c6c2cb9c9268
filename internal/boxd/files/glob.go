package files

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/paths"
	"github.com/holdfast-run/holdfast/internal/boxd/pattern"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// trimGlob is how many bytes of paths a glob collects before it drops the oldest files beyond its limit.
const trimGlob = 2 << 20

// Glob finds regular files and symlinks, and sorts them: newest first, files of the same time by
// path. The pattern is relative to Path (empty: the workspace), or absolute, or begins with "~/".
// "*" matches hidden names too. Directories named .git are searched only if the pattern contains
// ".git". Symlinks to directories are not followed. The limit 0 means 1000; a limit above 10,000
// means 10,000.
func (f *FS) Glob(req wire.GlobRequest) (wire.GlobAnswer, error) {
	const op = "file.glob"
	ans := wire.GlobAnswer{Paths: []string{}}
	limit, err := limitOf(op, req.Limit)
	if err != nil {
		return ans, err
	}
	root, err := f.door.resolveDir(op, req.Path)
	if err != nil {
		return ans, err
	}
	if err := paths.IsDir(root); err != nil {
		return ans, fail(op, req.Path, err)
	}
	prefix, rest := splitPattern(DecodeName(req.Pattern))
	p, err := pattern.Compile(op, rest)
	if err != nil {
		return ans, err
	}
	switch {
	case prefix == "":
	case filepath.IsAbs(prefix) || prefix == "~" || strings.HasPrefix(prefix, "~/"):
		root, err = f.door.resolve(op, EncodeName(prefix))
	default:
		root, err = f.door.resolve(op, EncodeName(filepath.Join(f.door.shown(root), prefix)))
	}
	if err != nil {
		return ans, err
	}
	g := &globber{walk: f.newWalk(), pattern: p, limit: limit, git: strings.Contains(rest, ".git")}
	defer g.end()
	err = g.begin(op, req.Path, root)
	if err == nil {
		err = g.dir("", p.Start())
	}
	if err != nil && !holdfast.IsKind(fail(op, "", err), holdfast.KindNotFound) {
		return ans, fail(op, req.Pattern, err)
	}
	g.trim()
	for _, h := range g.hits {
		ans.Paths = append(ans.Paths, EncodeName(f.door.shown(h.path)))
	}
	ans.Truncated = g.truncated
	return ans, nil
}

// splitPattern splits a pattern into the directories at its beginning that have no wildcards, and the rest.
func splitPattern(s string) (prefix, rest string) {
	rest = s
	for {
		part, after, found := strings.Cut(rest, "/")
		if !found || pattern.HasMeta(part) || strings.Trim(after, "/") == "" {
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
	pattern *pattern.Pattern
	limit   int
	git     bool
	hits    []hit
	bytes   int
}

// dir searches a directory and the directories below it. rel is the path of the directory below
// the root of the search: empty, or with a slash at its end. dir returns an error if the directory
// itself cannot be read; directories below it that cannot be read are skipped.
func (g *globber) dir(rel string, at []pattern.Place) error {
	fd, err := g.open(rel)
	if err != nil {
		return err
	}
	entries, err := g.entries(fd)
	if err == nil {
		g.match(fd, rel, at, entries)
	}
	// Close the directory before the search descends: a deep tree must not use a descriptor for each level.
	_ = unix.Close(fd)
	defer g.done(entries)
	for _, e := range entries {
		if g.late() {
			return nil
		}
		child := rel + e.name
		if e.kind != kindDir || e.name == ".git" && !g.git || !g.holds(child) {
			continue
		}
		next, _ := g.pattern.Step(at, e.name)
		if len(next) == 0 {
			continue
		}
		if err := g.dir(child+"/", next); err != nil && len(child) >= maxPath {
			g.truncated = true
		}
	}
	return err
}

// match collects the files and symlinks of one directory that match the pattern to its end.
func (g *globber) match(dir int, rel string, at []pattern.Place, entries []entry) {
	for _, e := range entries {
		if g.late() {
			return
		}
		if e.kind != kindFile && e.kind != kindLink {
			continue
		}
		if _, matched := g.pattern.Step(at, e.name); matched && g.holds(rel+e.name) {
			g.hit(dir, e.name, paths.Join(g.root, rel+e.name))
		}
	}
}

func (g *globber) hit(dir int, name, path string) {
	st, err := statAt(dir, name)
	if err != nil {
		return
	}
	sec, nsec := st.Mtim.Unix()
	g.hits = append(g.hits, hit{path, time.Unix(sec, nsec)})
	g.bytes += len(path)
	if len(g.hits) > 2*g.limit+dirBatch || g.bytes > trimGlob {
		g.trim()
	}
}

// trim sorts the hits, newest first, and drops those beyond the limit, and those that do not fit one answer.
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
