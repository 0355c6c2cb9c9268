package recall

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/statcache"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
)

// TestMemoriesAreBounded: the memories of all scopes need at most mostMemory bytes. Put keeps the memory that it has just stored,
// and Take removes what it returns.
func TestMemoriesAreBounded(t *testing.T) {
	var all Memories[int]
	m := &Memory{}
	m.Trees[0] = largeMemo(t)
	for i := range 1000 {
		all.Put(i, m)
		if all.of[i] == nil || all.size > mostMemory {
			t.Fatalf("scope %d: %d bytes", i, all.size)
		}
	}
	if kept := all.size / m.size(); kept < 100 || kept > 500 {
		t.Errorf("%d memories of %d bytes are kept", kept, m.size())
	}
	for i := range 1000 {
		all.Take(i)
	}
	if all.size != 0 || len(all.of) != 0 {
		t.Errorf("%d bytes of %d scopes are left", all.size, len(all.of))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// largeMemo returns the memo of a tree with long names.
func largeMemo(t *testing.T) *statcache.Memo {
	base := t.TempDir()
	dir := filepath.Join(base, "tree")
	must(t, os.Mkdir(dir, 0o755))
	for i := range 15 {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(strings.Repeat("n", 250), i)), nil, 0o644))
	}
	packs, err := pack.Open(filepath.Join(base, "packs"), pack.Keys{}, pack.Config{})
	must(t, err)
	c := tree.Config{
		Dir: dir, State: filepath.Join(base, "state"), Bounds: rooted.Bounds{Entries: 100, Depth: 10}, Now: time.Now,
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		w := packs.Writer(nil)
		c.Sink = w
		scan := tree.NewScan(c)
		must(t, scan.Live(t.Context()))
		r, err := scan.Finish(t.Context())
		must(t, err)
		must(t, r.Save())
		m := scan.Memo()
		scan.Close()
		must(t, w.Abort())
		if c.Last = r.Root; m != nil {
			return m
		}
	}
	t.Fatal("no memo of a tree at rest")
	return nil
}
