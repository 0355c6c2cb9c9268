package policy

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/sandbox/check"
)

// Scope implements Decider: it returns what the sandbox settings and the deny rules of
// all layers leave a tool to touch. It is empty for tools that open no file by
// themselves. A rule that names a directory also applies to everything in it.
func (e *Engine) Scope(_ context.Context, req Request) (Scope, error) {
	out := Scope{Layers: e.layers(req)}
	t, _ := e.tools.find(req.Tool)
	if t.Subject != SubjectPath {
		return out, nil
	}
	if e.refuse != "" {
		return Scope{Denied: []string{"/"}}, nil
	}
	op := check.Read
	if t.Class == ClassEdits {
		op = check.Write
	}
	for _, s := range e.sandboxes {
		out = s.settings.Scope(op, req.home(), out)
	}
	for _, r := range e.rules.Deny {
		if !r.Scoped || !r.keepsFrom(t) {
			continue
		}
		if p, wild := treeOf(absolutePattern(r.Spec, req.home(), req.cwd())); wild {
			out.Patterns = append(out.Patterns, p)
		} else {
			out.Denied = append(out.Denied, p)
		}
	}
	return out, nil
}

// keepsFrom reports whether a deny rule for paths applies where a tool opens files. A
// path that may not be read may not be edited either: an edit shows the content it
// changes.
func (r Rule) keepsFrom(t Tool) bool {
	return strings.EqualFold(r.Tool, t.Name) || r.family(t) || t.Class == ClassEdits && strings.EqualFold(r.Tool, "Read")
}

// treeOf returns the root of a pattern: a rule for everything in a directory is one for
// the directory. wild: the root has wildcards.
func treeOf(pattern string) (root string, wild bool) {
	for strings.HasSuffix(pattern, "/**") {
		pattern = strings.TrimSuffix(pattern, "/**")
	}
	return path.Clean("/" + pattern), strings.ContainsAny(pattern, `*?[\`)
}

// absolutePattern is a pattern of paths from the root. `**` is any number of directories;
// without a slash a pattern is a name anywhere; two slashes at the beginning are one.
func absolutePattern(pattern, home, cwd string) string {
	switch {
	case strings.HasPrefix(pattern, "~/"):
		return literal(home) + pattern[1:]
	case !strings.Contains(pattern, "/"):
		return "/**/" + pattern
	case strings.HasPrefix(pattern, "**/"):
		return "/" + pattern
	case strings.HasPrefix(pattern, "//"):
		return pattern[1:]
	case relative(pattern):
		return path.Join(literal(cwd), pattern)
	}
	return pattern
}

// literal is the pattern that matches only the given path.
func literal(p string) string {
	if !strings.ContainsAny(p, `*?[\`) {
		return p
	}
	var b strings.Builder
	for i := range len(p) {
		if slices.Contains([]byte(`*?[\`), p[i]) {
			b.WriteByte('\\')
		}
		b.WriteByte(p[i])
	}
	return b.String()
}
