//go:build linux

package jail

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestHZ25_ProofNoticesWhatIsNotThere: a wall of any kind that does not hold is found,
// and the error names the rule.
func TestHZ25_ProofNoticesWhatIsNotThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, n := range []node{
		{path: file, kind: wire.WallMasked},
		{path: dir, kind: wire.WallMasked, dir: true},
		{path: file, kind: wire.WallAbsent},
		{path: dir, kind: wire.WallReadOnly, dir: true},
		{path: file, kind: wire.WallReadOnly},
		{path: filepath.Join(dir, "gone"), kind: wire.WallMasked},
	} {
		n.rule = "the rule"
		err := n.prove()
		if !holdfast.IsKind(err, holdfast.KindUnavailable) || holdfast.HintOf(err) == "" {
			t.Errorf("%+v: %v", n, err)
		}
	}
	for _, n := range []node{{path: file, kind: wire.WallPin}, {path: file, writable: true}, {path: filepath.Join(dir, "gone"), kind: wire.WallAbsent}} {
		if err := n.prove(); err != nil {
			t.Errorf("%+v: %v", n, err)
		}
	}
}

// matches returns those of paths that the expansion of a pattern would wall.
func matches(pattern string, paths ...string) []string {
	x := &expander{patterns: []globbed{{pattern, wire.WallMasked, split(pattern)}}}
	var out []string
	for _, p := range paths {
		states := x.close([]state{{0, 0}})
		var ended *globbed
		for _, name := range split(p) {
			if states, ended = x.next(states, name); ended != nil {
				out = append(out, p)
				break
			}
		}
	}
	return out
}

// TestHZ25_PatternsMatch: a pattern matches segment by segment, `**` matches any number
// of directories, and everything below a match belongs to it.
func TestHZ25_PatternsMatch(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string][]string{
		"/**/.env":          {"/.env", "/a/.env", "/a/b/.env", "/a/.env/x"},
		"/a/*.pem":          {"/a/x.pem"},
		"/a/**/b/**/c":      {"/a/b/c", "/a/x/b/y/z/c"},
		"/**/b/*":           {"/a/b/c", "/a/b/x.pem", "/a/x/b/y/z/c"},
		"/a/[bx]/**/.en[v]": {"/a/b/.env"},
	} {
		got := matches(pattern, "/.env", "/a/.env", "/a/b/.env", "/a/.env/x", "/a/x.pem", "/a/x.pemx", "/b/x.pem", "/a/b/c", "/a/x/b/y/z/c", "/a/b/x.pem")
		if pattern == "/**/b/*" {
			want = []string{"/a/b/.env", "/b/x.pem", "/a/b/c", "/a/x/b/y/z/c", "/a/b/x.pem"}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", pattern, got, want)
		}
	}
}

// TestHZ25_ListsMeet: of several lists of roots only paths in all of them count.
func TestHZ25_ListsMeet(t *testing.T) {
	t.Parallel()
	got := meet([][]string{{"/w/a", "/w/b", "/usr"}, {"/w", "/x"}, {"/w/a/deep", "/w/a/deep/er", "/w/b", "/usr"}})
	if want := []string{"/w/a/deep", "/w/b"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := meet([][]string{{"/w/a"}, {"/w/b"}}); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

// TestGrounds: a path belongs to the tree above it, by whole names.
func TestGrounds(t *testing.T) {
	g := grounds{workspace: "/workspace", home: "/home/agent"}
	for p, want := range map[string]string{
		"/workspace": "/workspace", "/workspace/a/b": "/workspace", "/workspaces": "", "/home": "",
		"/home/agent/.x": "/home/agent", "/tmp/a": "/tmp", "/dev/shm/a": "/dev/shm", "/dev/null": "", "/": "",
	} {
		if got := g.tree(p); got != want {
			t.Errorf("%s lies in %q, not %q", p, got, want)
		}
	}
}

// TestHZ25_PlaceholderOfAnotherBox: two boxes of one tree may make the same placeholders at the same moment.
func TestHZ25_PlaceholderOfAnotherBox(t *testing.T) {
	dir := t.TempDir()
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	if err := os.Mkdir(filepath.Join(dir, "work"), 0o755); err != nil {
		t.Fatal(err)
	}
	for rule, other := range map[string]func(string) error{
		"/work/file":      func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"/work/dir/":      func(p string) error { return os.Mkdir(p, 0o755) },
		"/work/above/sub": func(p string) error { return os.Mkdir(filepath.Dir(p), 0o755) },
	} {
		w := &walls{grounds: grounds{workspace: "/work", home: "/home"}, tool: -1, root: root, nodes: map[string]*node{}, made: map[string]bool{}}
		p, err := w.follow(rule)
		if err != nil || len(p.rest) == 0 {
			t.Fatal(p, err)
		}
		path := filepath.Clean(rule)
		if err := other(filepath.Join(dir, path)); err != nil {
			t.Fatal(err)
		}
		if err := w.absent(rule, wire.WallMasked, true, p); err != nil {
			t.Errorf("%s: %v", rule, err)
		}
		if n := w.nodes[path]; n == nil || n.kind != wire.WallMasked && n.kind != wire.WallAbsent {
			t.Errorf("%s: no wall is requested: %+v", rule, n)
		}
		if w.made[path] != (rule == "/work/above/sub") {
			t.Errorf("%s: made %v", rule, w.made)
		}
	}
	w := &walls{spec: wire.Walls{}, grounds: grounds{workspace: "/work", home: "/home"}, tool: -1, root: root, races: 100}
	if err := w.placeholder("/work/dir", true); !errors.Is(err, unix.EEXIST) || again(w) {
		t.Errorf("a path at which something appears each time: %v", err)
	}
}
