package policy

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/sandbox/check"
)

// Scope returns, as Decider describes, which files a tool may access under the sandbox settings, agent directories and
// deny rules of all layers. For tools that open no files themselves it has only the layers that the kernel enforces. If
// settings cannot be read, it denies file tools every path. A rule that names a directory also applies to everything in
// it.
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
	out.Agents = e.AgentDirs()
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

// keepsFrom reports whether a deny rule for paths applies to the files that tool t opens.
// Read rules apply to editing tools too, because an edit reveals the content it changes.
func (r Rule) keepsFrom(t Tool) bool {
	return strings.EqualFold(r.Tool, t.Name) || r.family(t) || t.Class == ClassEdits && strings.EqualFold(r.Tool, "Read")
}

// treeOf returns a pattern without "/**" at its end, because a rule for everything in a
// directory includes the directory. wild is true if the pattern has wildcards besides that.
func treeOf(pattern string) (root string, wild bool) {
	for strings.HasSuffix(pattern, "/**") {
		pattern = strings.TrimSuffix(pattern, "/**")
	}
	return path.Clean("/" + pattern), strings.ContainsAny(pattern, `*?[\`)
}

// absolutePattern returns a path pattern as an absolute one: ~ is the home. `**` matches any number of
// directories; a pattern without a slash matches that name in any directory; two slashes at
// the beginning mean one.
func absolutePattern(pattern, home, cwd string) string {
	switch {
	case pattern == "~", strings.HasPrefix(pattern, "~/"):
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

// literal returns the pattern that matches only the given path: special characters are
// escaped.
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
