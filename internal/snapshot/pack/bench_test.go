package pack_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// text returns n bytes that compress as source code does, different for each seed.
func text(seed, n int) []byte {
	out := make([]byte, 0, n+64)
	for i := 0; len(out) < n; i++ {
		out = fmt.Appendf(out, "func f%d(x int) int { return x*%d + %d }\n", i, seed*i%977, seed)
	}
	return out[:n]
}

// BenchmarkCommit puts and commits the blobs of a turn: ten changed files of 10 KB and the nodes
// above them, in a scope with 20 packs of 500 blobs.
func BenchmarkCommit(b *testing.B) {
	for _, keys := range []struct {
		name string
		pack.Keys
	}{{"plain", plain}, {"sealed", sealed}} {
		b.Run(keys.name, func(b *testing.B) {
			s := open(b, b.TempDir(), keys.Keys)
			known := scope(b, s, 20, 500)
			files := make([][]byte, 10)
			for n := range files {
				files[n] = text(n, 10_000)
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				w := s.Writer(known)
				for _, f := range files {
					binary.LittleEndian.PutUint64(f, uint64(n))
					put(b, w, pack.Data, f)
					put(b, w, pack.Node, f[:2000])
				}
				commit(b, w, pack.Record{Data: []byte("a record")})
			}
		})
	}
}

// scope writes packs of blobs of 8 bytes.
func scope(b *testing.B, s *pack.Store, packs, blobs int) pack.Set {
	var out pack.Set
	for p := range packs {
		w := s.Writer(nil)
		for n := range blobs {
			put(b, w, pack.Data, binary.LittleEndian.AppendUint64(nil, uint64(p*blobs+n)))
		}
		out = append(out, set(commit(b, w, pack.Record{})...)...)
	}
	return out
}

// BenchmarkPutKnown puts a blob of 4 KB that the last of 100 known packs has.
func BenchmarkPutKnown(b *testing.B) {
	s := open(b, b.TempDir(), plain)
	known := scope(b, s, 99, 100)
	data := text(1, 4096)
	w := s.Writer(nil)
	put(b, w, pack.Data, data)
	known = append(known, set(commit(b, w, pack.Record{})...)...)
	w = s.Writer(known)
	b.ReportAllocs()
	b.SetBytes(4096)
	for b.Loop() {
		put(b, w, pack.Data, data)
	}
}

// BenchmarkPutNew puts and compresses 16 MB of files of 10 KB, without the commit.
func BenchmarkPutNew(b *testing.B) {
	s := open(b, b.TempDir(), plain)
	files := make([][]byte, 1600)
	for n := range files {
		files[n] = text(n, 10_000)
	}
	b.ReportAllocs()
	b.SetBytes(16_000_000)
	for b.Loop() {
		w := s.Writer(nil)
		for _, f := range files {
			put(b, w, pack.Data, f)
		}
		if err := w.Abort(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGet reads 16 MB of blobs of 10 KB in their order.
func BenchmarkGet(b *testing.B) {
	for _, keys := range []struct {
		name string
		pack.Keys
	}{{"plain", plain}, {"sealed", sealed}} {
		b.Run(keys.name, func(b *testing.B) {
			s := open(b, b.TempDir(), keys.Keys)
			w := s.Writer(nil)
			var ids []pack.ID
			for n := range 1600 {
				ids = append(ids, put(b, w, pack.Data, text(n, 10_000)))
			}
			packs := set(commit(b, w, pack.Record{})...)
			b.ReportAllocs()
			b.SetBytes(16_000_000)
			for b.Loop() {
				r := s.In(packs)
				for _, id := range ids {
					if _, err := r.Get(b.Context(), id); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
