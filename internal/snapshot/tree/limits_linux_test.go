package tree

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// used uses a stored tree in each way that reads all of it, and returns the errors. It compares it with the tree empty.
func used(t *testing.T, s *store, empty, root pack.ID) map[string]error {
	t.Helper()
	out := map[string]error{"restore": Restore(t.Context(), s, root, elsewhere(t), me())}
	to := elsewhere(t)
	must(t, Restore(t.Context(), s, empty, to, me()))
	out["apply"] = Apply(t.Context(), s, empty, root, to, me())
	to = elsewhere(t)
	must(t, Restore(t.Context(), s, empty, to, me()))
	_, out["mend"] = Mend(t.Context(), s, root, to, me(), func(string, Entry, rooted.Entry) bool { return true })
	out["diff"] = nil
	for _, err := range Diff(t.Context(), s, empty, root) {
		if err != nil {
			out["diff"] = err
		}
	}
	out["blobs"] = Blobs(t.Context(), s, root, func(pack.Kind, pack.ID) bool { return true })
	return out
}

// TestDepth: what a scan stores of a tree of any depth can be used in each way, and is all of it down to the deepest level
// that a tree has; the scan reports a directory there, whose content it does not store.
func TestDepth(t *testing.T) {
	for _, depth := range []int{MaxDepth - 1, MaxDepth, MaxDepth + 1} {
		p := quickPlace(t)
		empty := p.scan().Root
		must(t, os.MkdirAll(p.at(strings.Repeat("d/", depth)), 0o755))
		p.write(strings.Repeat("d/", depth-1)+"f", "x")
		r := p.scan()
		if want := min(max(depth-MaxDepth+1, 0), 1); r.SkippedCount != want || r.Dirs != min(depth, MaxDepth)+1 {
			t.Errorf("%d levels: %d directories, %d paths skipped", depth, r.Dirs, r.SkippedCount)
		}
		for how, err := range used(t, p.store, empty, r.Root) {
			if err != nil {
				t.Errorf("%d levels: %s: %v", depth, how, err)
			}
		}
	}
}

// TestTooDeep: a stored tree that is deeper than any that a scan stores is refused, whatever is at its bottom.
func TestTooDeep(t *testing.T) {
	for _, depth := range []int{MaxDepth, MaxDepth + 1} {
		for _, e := range []Entry{{Type: Dir}, {Type: File}} {
			s := newStore()
			empty, err := s.Put(pack.Node, appendRoot(nil, appendBody(nil, Entry{Type: Dir, Mode: 0o755}), ref{}))
			must(t, err)
			e.Name, e.Mode = "e", 0o755
			for range depth - 1 {
				id, err := s.Put(pack.Node, append([]byte{entriesNode, 0}, encode(e)...))
				must(t, err)
				e = Entry{Name: "d", Type: Dir, Mode: 0o755, content: ref{kind: refList, id: id}}
			}
			root := tie(t, s, 0, append([]byte{entriesNode, 0}, encode(e)...))
			for how, err := range used(t, s, empty, root) {
				if (err == nil) != (depth == MaxDepth) {
					t.Errorf("%d levels: %s: %v", depth, how, err)
				}
			}
		}
	}
}

// TestLargestFile: a file of the most bytes that an entry can have is stored, and a larger one is reported, whether or not
// it was stored when it was smaller. The sum of sizes stops at the largest number.
func TestLargestFile(t *testing.T) {
	p := quickPlace(t)
	sized := func(name string, size int64) {
		p.write(name, "x")
		if err := os.Truncate(p.at(name), size); err != nil {
			t.Skipf("the file system has no files of %d bytes: %v", size, err)
		}
	}
	sized("grows", 10)
	sized("most", maxFile)
	sized("too", maxFile+1)
	if r := p.scan(); r.Files != 2 || r.Bytes != maxFile+10 || len(r.Skipped) != 1 || r.Skipped[0].Path != "too" {
		t.Errorf("%d files of %d bytes, skipped %v", r.Files, r.Bytes, r.Skipped)
	}
	sized("grows", math.MaxInt64-4095)
	sized("other", maxFile)
	r := p.scan()
	if r.Files != 2 || r.Bytes != math.MaxInt64 || r.SkippedCount != 2 {
		t.Errorf("%d files of %d bytes, skipped %v", r.Files, r.Bytes, r.Skipped)
	}
	to := elsewhere(t)
	must(t, Restore(t.Context(), p.store, r.Root, to, me()))
	for _, name := range []string{"most", "other"} {
		if info, err := os.Stat(filepath.Join(to, name)); err != nil || info.Size() != maxFile {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
}
