package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/statcache"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
)

// TestMemoriesAreBounded: the memories of all scopes need at most mostMemory bytes, the newest is kept, and a scope that is
// dropped leaves nothing.
func TestMemoriesAreBounded(t *testing.T) {
	s, err := New(Config{})
	must(t, err)
	m := &memory{}
	m.trees[0] = largeMemo(t)
	var last *scope
	for i := range 1000 {
		sc, unlock := s.lock(holdfast.BoxID(fmt.Sprint(i)))
		sc.ready = true
		s.memories.put(sc, m)
		unlock()
		if last = sc; s.memories.of[sc] == nil || s.memories.size > mostMemory {
			t.Fatalf("scope %d: %d bytes", i, s.memories.size)
		}
	}
	if kept := s.memories.size / m.size(); kept < 100 || kept > 500 {
		t.Errorf("%d memories of %d bytes are kept", kept, m.size())
	}
	s.memories.put(last, nil)
	for id := range s.scopes {
		sc, unlock := s.lock(id)
		sc.ready = false
		unlock()
	}
	if s.memories.size != 0 || len(s.scopes) != 0 {
		t.Errorf("%d bytes, %d scopes are left", s.memories.size, len(s.scopes))
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
