package pack_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

var (
	plain  = pack.Keys{ID: [32]byte{1, 2, 3}}
	sealed = pack.Keys{ID: [32]byte{1, 2, 3}, Seal: bytes.Repeat([]byte{7}, 32)}
)

// both runs a test with a plain store and with an encrypted one.
func both(t *testing.T, test func(t *testing.T, keys pack.Keys)) {
	t.Run("plain", func(t *testing.T) { test(t, plain) })
	t.Run("sealed", func(t *testing.T) { test(t, sealed) })
}

func open(t testing.TB, dir string, keys pack.Keys) *pack.Store {
	t.Helper()
	s, err := pack.Open(dir, keys, pack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// blob is a blob that a test put.
type blob struct {
	id   pack.ID
	kind pack.Kind
	data []byte
}

// blobs puts n blobs: small and large ones of both kinds, some of which cannot be compressed.
func blobs(t testing.TB, w *pack.Writer, seed uint64, n int) []blob {
	t.Helper()
	r := rand.NewChaCha8([32]byte{byte(seed)})
	var out []blob
	for i := range n {
		size := []int{0, 1, 100, 3000, 64 << 10, 64<<10 + 1, 300 << 10}[i%7]
		data := bytes.Repeat(fmt.Appendf(nil, "line %d of %d\n", i, seed), size/8+1)[:size]
		if i%3 == 0 {
			_, _ = r.Read(data) // never fails
		}
		b := blob{kind: pack.Kind(1 + i%2), data: data}
		b.id = put(t, w, b.kind, data)
		out = append(out, b)
	}
	return out
}

func put(t testing.TB, w *pack.Writer, kind pack.Kind, data []byte) pack.ID {
	t.Helper()
	id, err := w.Put(kind, data)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func commit(t testing.TB, w *pack.Writer, rec pack.Record) []pack.Info {
	t.Helper()
	infos, err := w.Commit(t.Context(), rec)
	if err != nil {
		t.Fatal(err)
	}
	return infos
}

func set(infos ...pack.Info) (s pack.Set) {
	for _, in := range infos {
		s = append(s, in.ID)
	}
	return s
}

// holds checks that the packs are whole and have the blobs.
func holds(t testing.TB, s *pack.Store, packs pack.Set, want []blob) {
	t.Helper()
	for _, id := range packs {
		if err := s.Verify(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	r := s.In(packs)
	for _, b := range want {
		got, err := r.Get(t.Context(), b.id)
		if err != nil || !bytes.Equal(got, b.data) {
			t.Fatalf("blob %s of %d bytes: %d bytes, %v", b.id, len(b.data), len(got), err)
		}
	}
}

func wantKind(t testing.TB, err error, kind holdfast.Kind) {
	t.Helper()
	if !holdfast.IsKind(err, kind) {
		t.Errorf("%v; want %s", err, kind)
	}
}

// TestRoundTrip: committed blobs are read as they were put, also by another process, and the
// record comes back.
func TestRoundTrip(t *testing.T) {
	both(t, func(t *testing.T, keys pack.Keys) {
		dir := t.TempDir()
		s := open(t, dir, keys)
		w := s.Writer(nil)
		want := blobs(t, w, 1, 70)
		infos := commit(t, w, pack.Record{Data: []byte("record")})
		holds(t, s, set(infos...), want)
		other, err := pack.Open(dir, keys, pack.Config{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		holds(t, other, set(infos...), want)
		var records []string
		for r, err := range other.Records(t.Context()) {
			if err != nil || r.Pack != infos[len(infos)-1].ID {
				t.Errorf("record of %s: %v", r.Pack, err)
			}
			records = append(records, string(r.Data))
		}
		if !slices.Equal(records, []string{"record"}) {
			t.Errorf("records %q", records)
		}
		for n, in := range infos {
			records, err := other.RecordsOf(in.ID)
			if last := n == len(infos)-1; err != nil || last != (len(records) == 1 && string(records[0]) == "record") {
				t.Errorf("records of pack %d of %d: %q, %v", n, len(infos), records, err)
			}
		}
	})
}

// TestKnownBlobsAreNotWrittenAgain: neither a blob of a known pack nor one that was put before is
// written, and a commit without a new blob makes no pack unless it must.
func TestKnownBlobsAreNotWrittenAgain(t *testing.T) {
	both(t, func(t *testing.T, keys pack.Keys) {
		s := open(t, t.TempDir(), keys)
		w := s.Writer(nil)
		old := blobs(t, w, 1, 20)
		first := commit(t, w, pack.Record{})
		w = s.Writer(set(first...))
		for _, b := range old {
			if id := put(t, w, b.kind, b.data); id != b.id {
				t.Fatalf("id %s, then %s", b.id, id)
			}
		}
		if infos := commit(t, w, pack.Record{Data: []byte("r")}); len(infos) != 0 {
			t.Errorf("no new blob: %+v", infos)
		}
		w = s.Writer(set(first...))
		if infos := commit(t, w, pack.Record{Data: []byte("r"), Always: true}); len(infos) != 1 || infos[0].Records != 1 {
			t.Errorf("a record that must be written: %+v", infos)
		}
		w = s.Writer(set(first...))
		put(t, w, old[3].kind, old[3].data)
		id := put(t, w, pack.Data, []byte("new"))
		put(t, w, pack.Data, []byte("new"))
		infos := commit(t, w, pack.Record{})
		if len(infos) != 1 || infos[0].Blobs != 1 || infos[0].Raw != 3 || infos[0].Records != 0 {
			t.Errorf("one new blob: %+v", infos)
		}
		holds(t, s, append(set(infos...), set(first...)...), append(old, blob{id, pack.Data, []byte("new")}))
		if in, err := s.Stat(infos[0].ID); err != nil || in != infos[0] {
			t.Errorf("stat: %+v, %v; want %+v", in, err, infos[0])
		}
		r := s.In(append(set(first...), infos[0].ID))
		_, err := r.Get(t.Context(), pack.ID{1})
		wantKind(t, err, holdfast.KindNotFound)
	})
}

// TestKindsHaveIDsOfTheirOwn: the same bytes as data and as a node are two blobs.
func TestKindsHaveIDsOfTheirOwn(t *testing.T) {
	s := open(t, t.TempDir(), plain)
	w := s.Writer(nil)
	a, b := put(t, w, pack.Data, []byte("x")), put(t, w, pack.Node, []byte("x"))
	if infos := commit(t, w, pack.Record{}); a == b || infos[0].Blobs != 2 {
		t.Errorf("ids %s and %s: %+v", a, b, infos)
	}
}

// TestManyPacks: a commit that does not fit into one pack makes several, each within its bounds,
// and blobs are not repeated across them. Small blobs without end fit as well.
func TestManyPacks(t *testing.T) {
	s := open(t, t.TempDir(), plain)
	w := s.Writer(nil)
	r := rand.NewChaCha8([32]byte{})
	var want []blob
	add := func(size int) {
		data := make([]byte, size)
		_, _ = r.Read(data) // never fails
		want = append(want, blob{put(t, w, pack.Data, data), pack.Data, data})
	}
	for range 5 {
		add(pack.MaxBlob)
	}
	for range 40_000 {
		add(4)
	}
	for _, b := range want[:10] {
		put(t, w, b.kind, b.data)
	}
	infos := commit(t, w, pack.Record{Data: bytes.Repeat([]byte("r"), pack.MaxRecord)})
	if len(infos) != 3 {
		t.Errorf("%d packs", len(infos))
	}
	unique := map[pack.ID]bool{}
	for _, b := range want {
		unique[b.id] = true
	}
	n := 0
	for i, in := range infos {
		if in.Bytes > pack.MaxPack || in.Records != 0 != (i == len(infos)-1) {
			t.Errorf("pack %d of %d: %+v", i+1, len(infos), in)
		}
		n += in.Blobs
	}
	if n != len(unique) {
		t.Errorf("%d blobs were written for %d", n, len(unique))
	}
	holds(t, s, set(infos...), want)
	files, err := s.List()
	listed := func(f pack.File) bool {
		return f.ID == infos[0].ID && f.Bytes == infos[0].Bytes && !f.ModTime.IsZero()
	}
	if err != nil || len(files) != 3 || !slices.ContainsFunc(files, listed) {
		t.Errorf("list: %+v, %v", files, err)
	}
}

// TestRefusals: what does not fit, an unknown kind, and a writer that has ended are refused, and
// leave nothing behind.
func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, plain)
	w := s.Writer(nil)
	_, err := w.Put(0, nil)
	wantKind(t, err, holdfast.KindInvalid)
	_, err = w.Put(pack.Data, make([]byte, pack.MaxBlob+1))
	wantKind(t, err, holdfast.KindTooLarge)
	blobs(t, w, 1, 20)
	_, err = w.Commit(t.Context(), pack.Record{Data: make([]byte, pack.MaxRecord+1)})
	wantKind(t, err, holdfast.KindTooLarge)
	_, err = w.Put(pack.Data, []byte("late"))
	wantKind(t, err, holdfast.KindInternal)
	_, err = w.Commit(t.Context(), pack.Record{})
	wantKind(t, err, holdfast.KindInternal)
	empty(t, dir)

	w = s.Writer(nil)
	blobs(t, w, 1, 20)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Commit(ctx, pack.Record{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a commit of a cancelled context: %v", err)
	}
	empty(t, dir)

	w = s.Writer(nil)
	blobs(t, w, 1, 20)
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	empty(t, dir)
	_, err = pack.Open(dir, pack.Keys{Seal: []byte("short")}, pack.Config{})
	wantKind(t, err, holdfast.KindInvalid)
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("the directory has %v, %v", names, err)
	}
}

// TestReadOnly: a store that is open read-only changes nothing, also not the files of the writer.
func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	_, err := pack.Open(filepath.Join(dir, "missing"), plain, pack.Config{ReadOnly: true})
	wantKind(t, err, holdfast.KindNotFound)
	s := open(t, dir, plain)
	w := s.Writer(nil)
	infos := commit(t, w, pack.Record{Data: []byte("r"), Always: true})
	w = s.Writer(nil)
	want := blobs(t, w, 1, 20)
	reader, err := pack.Open(dir, plain, pack.Config{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, reader.Remove(infos[0].ID), holdfast.KindConflict)
	other := reader.Writer(nil)
	_, err = other.Put(pack.Data, nil)
	wantKind(t, err, holdfast.KindConflict)
	_, err = other.Commit(t.Context(), pack.Record{})
	wantKind(t, err, holdfast.KindConflict)
	_, err = reader.Repack(t.Context(), set(infos...), pack.Live{})
	wantKind(t, err, holdfast.KindConflict)
	more := commit(t, w, pack.Record{})
	holds(t, reader, set(more...), want)
}

// TestRemove: a removed pack is gone at once, removing it again is not an error, and its blobs are
// reported as missing.
func TestRemove(t *testing.T) {
	s := open(t, t.TempDir(), plain)
	w := s.Writer(nil)
	id := put(t, w, pack.Data, []byte("a"))
	infos := commit(t, w, pack.Record{})
	for range 2 {
		if err := s.Remove(infos[0].ID); err != nil {
			t.Error(err)
		}
	}
	_, err := s.Stat(infos[0].ID)
	wantKind(t, err, holdfast.KindNotFound)
	wantKind(t, s.Verify(t.Context(), infos[0].ID), holdfast.KindNotFound)
	_, err = s.In(set(infos...)).Get(t.Context(), id)
	wantKind(t, err, holdfast.KindNotFound)
	named(t, err, infos[0].ID.String(), id.String())
	if files, err := s.List(); err != nil || len(files) > 0 {
		t.Errorf("list: %v, %v", files, err)
	}
}

// named checks that an error names things.
func named(t testing.TB, err error, names ...string) {
	t.Helper()
	for _, n := range names {
		if err == nil || !strings.Contains(err.Error(), n) {
			t.Errorf("%v does not name %s", err, n)
		}
	}
}

// TestRepack: the new packs have the live blobs and the wanted records, and the old packs stay
// until they are removed.
func TestRepack(t *testing.T) {
	both(t, func(t *testing.T, keys pack.Keys) {
		s := open(t, t.TempDir(), keys)
		var olds pack.Set
		var want, gone []blob
		live := map[pack.ID]bool{}
		for n := range 6 {
			w := s.Writer(olds)
			for i, b := range blobs(t, w, uint64(n), 21) {
				if i%2 == 0 || len(b.data) > 100_000 {
					want, live[b.id] = append(want, b), true
				} else {
					gone = append(gone, b)
				}
			}
			olds = append(olds, set(commit(t, w, pack.Record{Data: fmt.Appendf(nil, "record %d", n)})...)...)
		}
		infos, err := s.Repack(t.Context(), olds, pack.Live{
			Blob:   func(id pack.ID) bool { return live[id] },
			Record: func(r []byte) bool { return string(r) != "record 3" },
		})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, in := range infos {
			n += in.Blobs
		}
		if n != len(live) || len(infos) != 1 || infos[0].Records != 5 {
			t.Errorf("%d blobs for %d: %+v", n, len(live), infos)
		}
		holds(t, s, olds, gone[:1])
		if err := s.Remove(olds...); err != nil {
			t.Fatal(err)
		}
		holds(t, s, set(infos...), want)
		for _, b := range gone {
			if !live[b.id] {
				_, err := s.In(set(infos...)).Get(t.Context(), b.id)
				wantKind(t, err, holdfast.KindNotFound)
			}
		}
		listed, err := s.Blobs(infos[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		for b := range listed {
			if !live[b.ID] {
				t.Errorf("%+v is in the pack", b)
			}
			delete(live, b.ID)
		}
		if len(live) > 0 {
			t.Errorf("%d blobs are not listed", len(live))
		}
	})
}

// TestTogether: readers, writers and the garbage collection of one store work at the same time.
func TestTogether(t *testing.T) {
	s := open(t, t.TempDir(), sealed)
	w := s.Writer(nil)
	want := blobs(t, w, 1, 40)
	packs := set(commit(t, w, pack.Record{})...)
	shared := s.In(packs)
	var workers sync.WaitGroup
	for n := range uint64(4) {
		workers.Go(func() {
			w := s.Writer(packs)
			mine := blobs(t, w, 10+n, 20)
			infos := commit(t, w, pack.Record{Data: []byte("r")})
			holds(t, s, append(set(infos...), packs...), mine)
			if _, err := s.Repack(t.Context(), set(infos...), all); err != nil {
				t.Error(err)
			}
			s.Release()
			if err := s.Remove(set(infos...)...); err != nil {
				t.Error(err)
			}
		})
		workers.Go(func() {
			for _, b := range want {
				if got, err := shared.Get(t.Context(), b.id); err != nil || !bytes.Equal(got, b.data) {
					t.Errorf("%s: %v", b.id, err)
				}
			}
		})
	}
	workers.Wait()
}

// TestParsePackID: an id has one spelling.
func TestParsePackID(t *testing.T) {
	id := pack.PackID{0xab, 1}
	if got, err := pack.ParsePackID(id.String()); err != nil || got != id {
		t.Errorf("%s, %v", got, err)
	}
	for _, text := range []string{"", "ab", strings.ToUpper(id.String()), id.String() + "00", strings.Repeat("x", 64)} {
		_, err := pack.ParsePackID(text)
		wantKind(t, err, holdfast.KindInvalid)
	}
}
