package policy

import (
	"path"
	"strings"
)

// Walls are the path rules of all layers that a box can enforce with mounts, without
// looking at a call's text. Paths are absolute paths in the box and clean; one that
// ends in a slash names a directory, whether it exists or not. The zero value restricts
// nothing.
type Walls struct {
	// Masked paths can be neither read nor written; ReadOnly paths can only be read.
	Masked, ReadOnly []string
	// Readable and Writable have one list of roots for each layer that has such a list: a
	// path may be read, or written, only if it lies below a root of every list.
	Readable, Writable [][]string
	// Patterns and WritePatterns are absolute globs of masked and of read-only paths. Each
	// segment matches as in path.Match; `**` is any number of directories.
	Patterns, WritePatterns []string
}

// Empty reports whether the walls restrict nothing.
func (w Walls) Empty() bool {
	return len(w.Masked)+len(w.ReadOnly)+len(w.Readable)+len(w.Writable)+len(w.Patterns)+len(w.WritePatterns) == 0
}

// Walls collects the path rules of all layers: those in the sandbox settings and in the Read and Edit deny rules. It leaves
// out the sandbox settings of child agents, which share the box of their parent. Relative rules are relative to cwd; ~
// stands for home.
func (e *Engine) Walls(home, cwd string) Walls {
	var w Walls
	at := func(roots []string) []string {
		out := make([]string, 0, len(roots))
		for _, r := range roots {
			out = append(out, rooted(r, home))
		}
		return out
	}
	for _, s := range e.sandboxes {
		if s.child != nil {
			continue // a child agent shares its parent's box; layers restrict it instead
		}
		w.Masked = append(w.Masked, at(s.settings.DeniedPaths)...)
		w.ReadOnly = append(w.ReadOnly, at(s.settings.DeniedWritePaths)...)
		if list := s.settings.AllowedReadPaths; len(list) > 0 {
			w.Readable = append(w.Readable, at(list))
		}
		if list := s.settings.AllowedWritePaths; len(list) > 0 {
			w.Writable = append(w.Writable, at(list))
		}
	}
	for _, r := range e.rules.Deny {
		switch {
		case r.Scoped && strings.EqualFold(r.Tool, "Read"):
			w.Masked, w.Patterns = r.wall(home, cwd, w.Masked, w.Patterns)
		case r.Scoped && strings.EqualFold(r.Tool, "Edit"):
			w.ReadOnly, w.WritePatterns = r.wall(home, cwd, w.ReadOnly, w.WritePatterns)
		}
	}
	return w
}

// rooted returns a path in the settings as an absolute path. It keeps a slash at the end,
// which says that the path is a directory.
func rooted(root, home string) string {
	if root == "~" || strings.HasPrefix(root, "~/") {
		root = home + root[1:]
	}
	out := path.Clean(root)
	if strings.HasSuffix(root, "/") && out != "/" {
		out += "/"
	}
	return out
}

// wall adds a path rule to the fixed paths if it has no wildcards, else to the patterns.
func (r Rule) wall(home, cwd string, fixed, patterns []string) (newFixed, newPatterns []string) {
	p := absolutePattern(r.Spec, home, cwd)
	root, wild := treeOf(p)
	if wild {
		pattern := root
		if root, wild = plain(pattern); wild {
			return fixed, append(patterns, pattern)
		}
	}
	if strings.HasSuffix(p, "/**") && root != "/" {
		root += "/"
	}
	return append(fixed, root), patterns
}

// plain returns a pattern that matches one path as that path, without escapes. wild is true if it has wildcards.
func plain(pattern string) (p string, wild bool) {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case strings.IndexByte(`*?[`, c) >= 0, c == '\\' && i == len(pattern)-1:
			return "", true
		case c == '\\':
			i++
		}
		b.WriteByte(pattern[i])
	}
	return b.String(), false
}

// Home and Cwd are the usual directories of tools in a box.
const (
	Home = usualHome
	Cwd  = usualCwd
)
