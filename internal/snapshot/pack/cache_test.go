package pack

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestIndexesStayWithinTheirMemory: a store that uses more indexes than it keeps drops those that
// were not used for longest, and still finds every blob.
func TestIndexesStayWithinTheirMemory(t *testing.T) {
	s, err := Open(t.TempDir(), Keys{}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	s.indexes.most = 8 << 10
	var packs Set
	var ids []ID
	for n := range 20 {
		w := s.Writer(nil)
		for i := range 10 {
			id, err := w.Put(Data, fmt.Appendf(nil, "%d %d", n, i))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		infos, err := w.Commit(t.Context(), Record{})
		if err != nil {
			t.Fatal(err)
		}
		packs = append(packs, infos[0].ID)
	}
	r := s.In(packs)
	for _, id := range ids {
		if _, err := r.Get(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, slot := range s.indexes.slots {
			sum += slot.value.memory()
		}
		if sum != s.indexes.bytes || sum > s.indexes.most || len(s.indexes.slots) == 0 {
			t.Fatalf("%d indexes have %d bytes, %d counted", len(s.indexes.slots), sum, s.indexes.bytes)
		}
	}
	if r.packs.directory == nil {
		t.Error("the reader made no directory")
	}
	missed := r.packs.missed
	if _, err := r.Get(t.Context(), ID{1}); !holdfast.IsKind(err, holdfast.KindNotFound) || r.packs.missed != missed {
		t.Errorf("an absent blob: %v, after %d bytes of indexes", err, r.packs.missed-missed)
	}
	if s.Release(); s.indexes.bytes != 0 || len(s.indexes.slots) != 0 {
		t.Error("indexes are left after Release")
	}
}

// TestLargeSetsWithADamagedPack: a writer that knows more indexes than the store keeps writes the
// blobs of a damaged pack again, and no others. A reader returns the error of this pack for a blob
// that no other pack has.
func TestLargeSetsWithADamagedPack(t *testing.T) {
	s, err := Open(t.TempDir(), Keys{}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	s.indexes.most = 4 << 10
	var packs Set
	commit := func(w *Writer, from, to int) (infos []Info) {
		t.Helper()
		for n := from; n < to; n++ {
			if _, err := w.Put(Data, fmt.Append(nil, n)); err != nil {
				t.Fatal(err)
			}
		}
		infos, err := w.Commit(t.Context(), Record{})
		if err != nil {
			t.Fatal(err)
		}
		return infos
	}
	for n := range 20 {
		packs = append(packs, commit(s.Writer(nil), n*10, n*10+10)[0].ID)
	}
	bad := packs[7]
	if err := os.Truncate(s.path(bad), 100); err != nil {
		t.Fatal(err)
	}
	s.Release()
	w := s.Writer(packs)
	infos := commit(w, 0, 200)
	if len(infos) != 1 || infos[0].Blobs != 10 || w.known.directory == nil {
		t.Errorf("written: %+v", infos)
	}
	if err := w.Unread(); err == nil || strings.Count(err.Error(), bad.String()) != 1 {
		t.Errorf("unread: %v", err)
	}
	r := s.In(packs)
	for n := range 200 {
		_, err := r.Get(t.Context(), s.keys.blob(Data, fmt.Append(nil, n)))
		if lost := n/10 == 7; lost != (err != nil) || lost && !strings.Contains(err.Error(), bad.String()) {
			t.Errorf("blob %d: %v", n, err)
		}
	}
	if r.packs.directory == nil {
		t.Error("the reader made no directory")
	}
}

// TestCacheDropsTheOldest: what was used last stays, and what is larger than the cache is not kept.
func TestCacheDropsTheOldest(t *testing.T) {
	c := cache[string, int]{most: 10}
	c.put("a", 1, 4)
	c.put("b", 2, 4)
	if v, ok := c.get("a"); !ok || v != 1 {
		t.Errorf("a: %d, %v", v, ok)
	}
	c.put("c", 3, 4)
	c.put("huge", 4, 11)
	c.put("c", 5, 6)
	for key, want := range map[string]int{"a": 1, "c": 5} {
		if v, ok := c.get(key); !ok || v != want {
			t.Errorf("%s: %d, %v", key, v, ok)
		}
	}
	for _, key := range []string{"b", "huge"} {
		if _, ok := c.get(key); ok {
			t.Errorf("%s was kept", key)
		}
	}
	c.drop("a")
	if _, ok := c.get("a"); ok || c.bytes != 6 {
		t.Errorf("%d bytes after a drop", c.bytes)
	}
}
