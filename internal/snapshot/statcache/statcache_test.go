package statcache

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func record(key string, flags byte, n int) *Record {
	r := &Record{Key: []byte(key), Flags: flags}
	if flags&Gone == 0 {
		r.Body = []byte(fmt.Sprint("body ", n))
		if flags&End == 0 {
			r.Stat = Stat{Size: int64(n), Mtime: int64(-n), Ctime: int64(n) << 40, Ino: uint64(n), Mode: 0o644}
		}
	}
	return r
}

// TestOrder: a directory comes before its content, its end after it, and names sort by their bytes.
func TestOrder(t *testing.T) {
	order := []*Record{
		record("", 0, 0), record("\x00a", 0, 0), record("\x00a\x00\x01", 0, 0), record("\x00a\x00b", 0, 0), record("\x00a\x00b\x00c", 0, 0),
		record("\x00a\x00b\x00", End, 0), record("\x00a\x00b\x01", 0, 0), record("\x00a\x00\xff", 0, 0), record("\x00a\x00", End, 0),
		record("\x00a\x01", 0, 0), record("\x00a.b", 0, 0), record("\x00\xff", 0, 0), record("\x00", End, 0),
	}
	for i, a := range order {
		for j, b := range order {
			if got := Compare(a, b); cmp.Compare(got, 0) != cmp.Compare(i, j) {
				t.Errorf("%q against %q: %d", a.Key, b.Key, got)
			}
		}
	}
}

// TestMergedRuns: of several runs, small ones and some on disk, each key is returned once and in order, with the record of the newest run.
func TestMergedRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, size := range []int{0, 5, 500, 40_000} {
		want := map[string]*Record{}
		var readers []*Reader
		var runs []*Run
		for range 3 {
			keys := map[string]bool{}
			for range size {
				keys["\x00"+strings.Repeat("k", r.IntN(20))+fmt.Sprint(r.IntN(3*size))] = true
			}
			run := NewRun(t.TempDir())
			for _, k := range slices.Sorted(maps.Keys(keys)) {
				rec := record(k, []byte{0, Gone, Again, Moved | Again}[r.IntN(4)], r.IntN(1000))
				must(t, run.Add(rec))
				want[k] = rec
			}
			if run.Len() != len(keys) {
				t.Errorf("%d records of %d", run.Len(), len(keys))
			}
			runs = append(runs, run)
			readers = append([]*Reader{run.Records()}, readers...)
		}
		m := Merge(readers...)
		for _, k := range slices.Sorted(maps.Keys(want)) {
			must(t, m.Next())
			w := want[k]
			if m.Rec == nil || string(m.Rec.Key) != k || m.Rec.Flags != w.Flags || m.Rec.Stat != w.Stat || !bytes.Equal(m.Rec.Body, w.Body) {
				t.Fatalf("%+v, want %+v", m.Rec, w)
			}
		}
		if must(t, m.Next()); m.Rec != nil {
			t.Errorf("%+v at the end", m.Rec)
		}
		for _, run := range runs {
			run.Close()
		}
	}
}

// TestCache: changes are read back over the base, the newest first, from a cache of any size.
func TestCache(t *testing.T) {
	for _, n := range []int{3, 30_000} {
		dir, root := t.TempDir(), pack.ID{1}
		c, err := Open(dir, root)
		must(t, err)
		if c.Exists() || !c.Full(1) {
			t.Error("a cache that was never written exists")
		}
		base := NewRun(dir)
		want := map[string]int{}
		for i := range n {
			k := fmt.Sprintf("\x00k%06d", i)
			must(t, base.Add(record(k, 0, i)))
			want[k] = i
		}
		must(t, c.Replace(base, Head{Root: root, Cursor: 5}))
		c.Close()
		for round := range 5 {
			c, err := Open(dir, root)
			must(t, err)
			if !c.Exists() || c.Head.Cursor != int64(5+round) {
				t.Fatalf("round %d: %+v", round, c.Head)
			}
			got := map[string]int{}
			m := Merge(c.Runs()...)
			for err = m.There(); m.Rec != nil; err = m.There() {
				got[string(m.Rec.Key)] = int(m.Rec.Stat.Size)
			}
			must(t, err)
			if !maps.Equal(got, want) {
				t.Fatalf("round %d: %d records, want %d", round, len(got), len(want))
			}
			changes := NewRun(dir)
			gone, next := fmt.Sprintf("\x00k%06d", round%3), fmt.Sprintf("\x00k%06dx", round)
			must(t, changes.Add(record(gone, Gone, 0)))
			must(t, changes.Add(record(next, 0, round)))
			delete(want, gone)
			want[next] = round
			must(t, c.Append(changes, Head{Root: root, Cursor: int64(6 + round)}))
			c.Close()
		}
		if c, err := Open(dir, pack.ID{2}); err != nil || c.Exists() {
			t.Errorf("the cache of another root was taken: %v", err)
		}
	}
}

// FuzzReader: any bytes are read to an end, in bounded memory.
func FuzzReader(f *testing.F) {
	run := NewRun(f.TempDir())
	for i, k := range []string{"", "\x00a", "\x00a\x00b"} {
		if err := run.Add(record(k, 0, i)); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(run.mem)
	f.Add([]byte{0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		r := &Reader{from: bytes.NewReader(b)}
		for r.Next(); r.OK; r.Next() {
			if n++; n > len(b) {
				t.Fatal("more records than bytes")
			}
		}
		c := &Cache{changes: NewRun(t.TempDir())}
		_ = c.gather(b)
	})
}
