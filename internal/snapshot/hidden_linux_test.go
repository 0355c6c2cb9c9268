package snapshot

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// viewOf stores files as the workspace and the home of a checkpoint, and returns them under path rules. The keys
// are paths of the box; a value that begins with -> is the target of a symlink.
func viewOf(t *testing.T, files map[string]string, rules wire.Walls) *view {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	base := t.TempDir()
	packs, err := pack.Open(filepath.Join(base, "packs"), pack.Keys{}, pack.Config{})
	must(err)
	v := &view{}
	w := packs.Writer(nil)
	for i, name := range names {
		dir, state := filepath.Join(base, name), filepath.Join(base, "scans", name)
		must(os.MkdirAll(dir, 0o755))
		must(os.MkdirAll(state, 0o755))
		for at, content := range files {
			below, ok := strings.CutPrefix(at, places[i]+"/")
			if !ok {
				continue
			}
			must(os.MkdirAll(filepath.Dir(filepath.Join(dir, below)), 0o755))
			if target, link := strings.CutPrefix(content, "->"); link {
				must(os.Symlink(target, filepath.Join(dir, below)))
			} else {
				must(os.WriteFile(filepath.Join(dir, below), []byte(content), 0o600))
			}
		}
		scan := tree.NewScan(tree.Config{
			Dir: dir, State: state, Sink: w, Source: packs.In(nil), Bounds: rooted.Bounds{Entries: 1000, Depth: tree.MaxDepth}, Now: time.Now,
		})
		must(scan.Live(t.Context()))
		r, err := scan.Finish(t.Context())
		must(err)
		v.roots[i] = r.Root
		scan.Close()
	}
	written, err := w.Commit(t.Context(), pack.Record{Data: []byte("{}"), Always: true})
	must(err)
	var set pack.Set
	for _, p := range written {
		set = append(set, p.ID)
	}
	v.src = packs.In(set)
	must(v.hide(t.Context(), rules))
	return v
}

// TestHZ25_RulesHideStoredFiles: a path rule holds at the place to which its path leads, whatever symlinks a file is
// reached by; lists of allowed paths leave the directories on the way to them.
func TestHZ25_RulesHideStoredFiles(t *testing.T) {
	files := map[string]string{
		"/workspace/a": "a", "/workspace/dir/b": "b", "/workspace/dir/sub/c": "c", "/workspace/other/d": "d",
		"/workspace/link": "->dir", "/workspace/abs": "->/workspace/dir/b", "/workspace/up": "->../home/agent/h", "/workspace/loop": "->loop",
		"/workspace/out": "->/etc/passwd", "/workspace/x.key": "->plain", "/workspace/plain": "k", "/home/agent/h": "h", "/home/agent/.cfg/s": "s",
	}
	const ok, denied, missing, invalid = holdfast.Kind(""), holdfast.KindDenied, holdfast.KindNotFound, holdfast.KindInvalid
	type want map[string]holdfast.Kind
	for _, c := range []struct {
		name  string
		rules wire.Walls
		want  want
	}{
		{"no rule", wire.Walls{}, want{"a": ok, "link/b": ok, "link/../a": ok, "up": ok, "~/h": ok, "loop": invalid, "out": missing, "a/b": missing, "/etc/passwd": missing, "../home/agent/h": ok, "none": missing, "/": ok, "/home": ok}},
		{"a directory", wire.Walls{Masked: []string{"/workspace/dir/"}}, want{"dir": denied, "dir/none": denied, "link": denied, "link/b": denied, "abs": denied, "a": ok, "dir/../a": denied}},
		{"by a link", wire.Walls{Masked: []string{"/workspace/link/b", "/workspace/up"}}, want{"dir/b": denied, "abs": denied, "link/sub/c": ok, "~/h": denied, "up": denied}},
		{"loops and missing paths", wire.Walls{Masked: []string{"/workspace/loop", "/workspace/out", "/workspace/later/x"}}, want{"loop": denied, "out": denied, "later/x": missing, "a": ok}},
		{"everything", wire.Walls{Masked: []string{"/"}}, want{"a": denied, "~/h": denied}},
		{"a pattern", wire.Walls{Patterns: []string{"/workspace/**/*.key", "/home/agent/.cfg"}}, want{"x.key": denied, "plain": denied, "a": ok, "~/.cfg/s": denied, "~/h": ok}},
		{"allowed paths", wire.Walls{Readable: [][]string{{"/workspace/link"}, {"/workspace/dir/sub", "/workspace/a"}}}, want{"dir/sub/c": ok, "link/sub/c": missing, "dir/b": missing, "a": missing, "dir": ok, "other": missing, "~/h": missing, "other/d": missing, "none": missing}},
		{"allowed paths for a program", wire.Walls{Readable: [][]string{{"/workspace/dir"}}, KeepHome: true}, want{"dir/b": ok, "a": missing, "~/h": ok}},
		{"no allowed path", wire.Walls{Readable: [][]string{{"/workspace/none"}}}, want{"a": missing, "dir": missing, "~/h": missing}},
	} {
		v := viewOf(t, files, c.rules)
		for name, kind := range c.want {
			if at, _, err := v.follow(t.Context(), inBox(name), true); holdfast.KindOf(err) != kind {
				t.Errorf("%s: %s leads to %s, %v; want %q", c.name, name, at, err, kind)
			}
		}
	}

	v := viewOf(t, files, wire.Walls{Readable: [][]string{{"/workspace/dir/sub"}}})
	for dir, want := range map[string][]string{"/workspace": {"dir"}, "/workspace/dir": {"sub"}, "/workspace/dir/sub": {"c"}, "/home/agent": nil} {
		var got []string
		for e, err := range v.list(t.Context(), dir) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", dir, got, want)
		}
	}
}

// TestMissingBlobsAreNoMissingFiles: what cannot be read is an error of the store, so that no rule is taken for one
// without a file.
func TestMissingBlobsAreNoMissingFiles(t *testing.T) {
	v := viewOf(t, map[string]string{"/workspace/dir/a": "a"}, wire.Walls{})
	v.roots[0] = pack.ID{1}
	if _, _, err := v.follow(t.Context(), "/workspace/dir/a", true); !holdfast.IsKind(err, holdfast.KindInternal) {
		t.Errorf("%v", err)
	}
	if err := v.hide(t.Context(), wire.Walls{Masked: []string{"/workspace/dir"}}); !holdfast.IsKind(err, holdfast.KindInternal) {
		t.Errorf("the rules hold without their files: %v", err)
	}
}
