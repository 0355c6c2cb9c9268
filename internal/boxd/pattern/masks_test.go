package pattern

import (
	"path"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestScopePatterns: a pattern refuses its matches and everything below them.
func TestScopePatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, p string
		want       bool
	}{
		{"/**/.env", "/workspace/.env", true},
		{"/**/.env", "/.env", true},
		{"/**/.env", "/workspace/a/b/.env", true},
		{"/**/.env", "/workspace/.env/below", true},
		{"/**/.env", "/workspace/.envrc", false},
		{"/**/.env*", "/workspace/.envrc", true},
		{"/workspace/**", "/workspace", true},
		{"/workspace/**", "/workspace/a", true},
		{"/workspace/**", "/workspaces", false},
		{"/a/**/b/**/c", "/a/b/c", true},
		{"/a/**/b/**/c", "/a/x/b/y/z/c", true},
		{"/a/**/b/**/c", "/a/x/c/y/b", false},
		{"/a/**/b/**/c", "/a/x/b/y", false},
		{"/a/*", "/a", false},
		{"/a/*", "/a/b/c", true},
		{"/a/[!b]", "/a/c", false}, // path.Match negates with ^
		{"/a/[^b]", "/a/c", true},
		{"/", "/a", true},
		{"/**", "/", true},
		{"/**/**/x", "/x", true},
		{"/**/**/x", "/y", false},
	} {
		m, err := CompileMasks([]string{c.pattern})
		if err != nil {
			t.Fatalf("%s: %v", c.pattern, err)
		}
		if got := m.Cover(c.p); got != c.want {
			t.Errorf("%s covers %s: %v", c.pattern, c.p, got)
		}
	}
	for _, bad := range []string{"", "a", "**/x", "/a/[", "/a/../b", "/./a", "/" + strings.Repeat("a", 5000), "/a\\"} {
		if _, err := CompileMasks([]string{bad}); !holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) == "" {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}

// TestScopePatternsAreLinear: a pattern takes at most one step for each pair of a
// segment and a name. Going back to each ** in turn would take years for this one.
func TestScopePatternsAreLinear(t *testing.T) {
	m, err := CompileMasks([]string{strings.Repeat("/**/a", 400) + "/b", "/" + strings.Repeat("*a", 120) + "b"})
	if err != nil {
		t.Fatal(err)
	}
	names := split(strings.Repeat("/a", 2000))
	tried := 0
	if coversBy(m[0], names, func(seg, name string) bool {
		tried++
		ok, _ := path.Match(seg, name)
		return ok
	}) {
		t.Error("it matches")
	}
	if most := len(m[0]) * len(names); tried == 0 || tried > most {
		t.Errorf("%d steps, at most %d", tried, most)
	}
	if m.Cover("/" + strings.Repeat("a", 255)) {
		t.Error("it matches")
	}
}

// FuzzScopePattern compares the matcher with the plain, exponential definition.
func FuzzScopePattern(f *testing.F) {
	for _, s := range [][2]string{{"/**/.env", "/a/.env"}, {"/a/**/b", "/a/c/b/d"}, {"/*/[ab]", "/x/a"}} {
		f.Add(s[0], s[1])
	}
	var plain func(segs, names []string) bool
	plain = func(segs, names []string) bool {
		if len(segs) == 0 {
			return true
		}
		if segs[0] == anyDirs && plain(segs[1:], names) {
			return true
		}
		if len(names) == 0 {
			return false
		}
		if segs[0] == anyDirs {
			return plain(segs, names[1:])
		}
		ok, _ := path.Match(segs[0], names[0])
		return ok && plain(segs[1:], names[1:])
	}
	f.Fuzz(func(t *testing.T, pattern, p string) {
		m, err := CompileMasks([]string{pattern})
		if err != nil || len(m[0]) > 8 || len(split(p)) > 12 {
			return
		}
		if got, want := m.Cover(p), plain(m[0], split(p)); got != want {
			t.Fatalf("%q covers %q: %v, want %v", pattern, p, got, want)
		}
	})
}
