package tree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast/internal/rooted"
)

// chunkItem encodes an item of a list of chunks.
func chunkItem(it item, level uint8) []byte {
	if level > 0 {
		return append(binary.AppendUvarint(nil, uint64(it.size)), it.id[:]...)
	}
	if it.hole {
		return binary.AppendUvarint(nil, uint64(it.size)<<1|1)
	}
	return append(binary.AppendUvarint(nil, uint64(it.size)<<1), it.id[:]...)
}

// memFile is a file in memory, whose holes are its aligned pages of zeros.
type memFile []byte

func (m memFile) ReadAt(p []byte, off int64) (int, error) { return bytes.NewReader(m).ReadAt(p, off) }

func (m memFile) NextData(off int64) (int64, error) {
	for at := off; at < int64(len(m)); at = (at | 4095) + 1 {
		if !zero(m[at:min((at|4095)+1, int64(len(m)))]) {
			return at, nil
		}
	}
	return 0, io.EOF
}

func (m memFile) NextHole(off int64) (int64, error) {
	for at := off; at < int64(len(m)); at = (at | 4095) + 1 {
		if zero(m[at:min((at|4095)+1, int64(len(m)))]) {
			return at, nil
		}
	}
	return int64(len(m)), nil
}

// TestHolesAreNotRead: of a file of single bytes with large holes between them, little more than the bytes is read.
func TestHolesAreNotRead(t *testing.T) {
	const islands, apart = 100, 64 << 20
	f, err := os.CreateTemp(t.TempDir(), "")
	must(t, err)
	defer f.Close()
	for i := range islands {
		_, err := f.WriteAt([]byte{1}, int64(i)*apart)
		must(t, err)
	}
	dir, err := rooted.OpenTree(filepath.Dir(f.Name()))
	must(t, err)
	defer dir.Close()
	h, now, err := rooted.OpenFile(dir, filepath.Base(f.Name()))
	must(t, err)
	defer h.Close()
	c := content{sink: newStore()}
	_, n, err := c.store(t.Context(), h, now.Size, true, nil)
	if must(t, err); n != now.Size || c.hashed > islands*3*holeBlock {
		t.Errorf("%d bytes of %d, %d of them read", n, now.Size, c.hashed)
	}
}

// stored stores content, reads it back, and returns its chunks.
func stored(t *testing.T, s *store, data []byte, sparse bool) (ref, []item) {
	t.Helper()
	c := content{sink: s}
	r, n, err := c.store(t.Context(), memFile(data), int64(len(data)), sparse, nil)
	must(t, err)
	if n != int64(len(data)) || r.kind != wantContent(n) {
		t.Fatalf("%d bytes of %d in content of kind %d", n, len(data), r.kind)
	}
	e := Entry{Type: File, Size: n, content: r}
	back, err := io.ReadAll(&reader{ctx: t.Context(), pieces: newPieces(s, e)})
	must(t, err)
	if !bytes.Equal(back, data) {
		t.Fatalf("%d bytes came back differently", len(data))
	}
	if r.kind != refList {
		return r, nil
	}
	var items []item
	for list := newCursor(s, chunksNode, r, n); ; {
		it, ok, err := list.next(t.Context())
		must(t, err)
		if !ok {
			return r, items
		}
		items = append(items, it)
	}
}

// TestChunks: chunks have the right sizes, a change moves only those near it, and holes are found by content alone.
func TestChunks(t *testing.T) {
	data := random(rand.New(rand.NewPCG(1, 1)), 16<<20)
	s := newStore()
	_, items := stored(t, s, data, false)
	if n := len(items); n < 40 || n > 90 {
		t.Errorf("%d chunks of 16 MiB", n)
	}
	for i, it := range items {
		if it.size > maxChunk || it.size < leastChunk && i < len(items)-1 {
			t.Errorf("a chunk of %d bytes", it.size)
		}
	}
	before := s.bytes
	longer := append(append(bytes.Clone(data[:5<<20]), "inserted"...), data[5<<20:]...)
	stored(t, s, longer, false)
	if more := s.bytes - before; more > 3<<20 {
		t.Errorf("an insertion of 8 bytes stores %d bytes", more)
	}
	clear(data[1<<20 : 3<<20])
	clear(data[5<<20+1 : 5<<20+holeBlock])
	clear(data[15<<20+5:])
	dense, items := stored(t, s, data, false)
	sparse, _ := stored(t, s, data, true)
	if dense != sparse {
		t.Error("a sparse file has another id than a dense one")
	}
	var holes []int64
	for _, it := range items {
		if it.hole {
			holes = append(holes, it.size)
		}
	}
	if len(holes) != 2 || holes[0] != 2<<20 || holes[1] != 1<<20-holeBlock {
		t.Errorf("holes of %v", holes)
	}
	_, items = stored(t, s, make([]byte, 10<<20+1), true)
	if len(items) != 1 || !items[0].hole {
		t.Errorf("10 MiB of zeros are %+v", items)
	}
}

// plainCut is cut as docs/format/snapshot.md describes it.
func plainCut(b []byte) int {
	var h uint64
	for i := leastChunk; i < min(len(b), maxChunk); i++ {
		h = h<<1 + mix(uint64(b[i])*0x9e3779b97f4a7c15)
		if i < usualChunk && h < 1<<44 || i >= usualChunk && h < 1<<48 {
			return i + 1
		}
	}
	return min(len(b), maxChunk)
}

// TestCut: chunks end where the document says, in data of any kind and length.
func TestCut(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 12 {
		data := random(r, r.IntN(2<<20))
		if i%3 == 0 {
			// Few values give hits that are close together, and none at all.
			for j := range data {
				data[j] %= byte(i%7 + 1)
			}
		}
		for at := 0; at < len(data); {
			got, want := cut(data[at:]), plainCut(data[at:])
			if got != want {
				t.Fatalf("a chunk of %d bytes, want %d", got, want)
			}
			at += got
		}
	}
}

// TestLastChunks: a file that was stored before is cut as a new one is, whatever changed, and equal chunks are not stored again.
func TestLastChunks(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 30 {
		s := newStore()
		data := random(r, 100<<10+r.IntN(6<<20))
		if r.IntN(2) == 0 {
			clear(data[len(data)/3 : len(data)/2])
		}
		old, _ := stored(t, s, data, false)
		size := int64(len(data))
		for range r.IntN(3) {
			at := r.IntN(len(data))
			switch r.IntN(5) {
			case 0:
				data = append(append(bytes.Clone(data[:at]), "inserted"...), data[at:]...)
			case 1:
				data = data[:maxWhole+1+at*(len(data)-maxWhole-1)/len(data)]
			case 2:
				clear(data[at:min(len(data), at+200<<10)])
			case 3:
				data = append(data, random(r, r.IntN(1<<20))...)
			case 4:
				data[at]++
			}
		}
		c := content{sink: s}
		last := &lastChunks{list: newCursor(s, chunksNode, old, size)}
		got, n, err := c.store(t.Context(), memFile(data), int64(len(data)), false, last)
		must(t, err)
		if want, _ := stored(t, newStore(), data, false); got != want || n != int64(len(data)) {
			t.Fatal("the file is cut differently from a new one")
		}
		if last.off == 0 && size > 2<<20 {
			t.Error("the last chunks were not used")
		}
	}
}

// TestShrinkingFile: a file that ends earlier than its stat said is stored as it was read.
func TestShrinkingFile(t *testing.T) {
	data := random(rand.New(rand.NewPCG(1, 1)), 300<<10)
	for _, n := range []int{0, 1, maxWhole, maxWhole + 1, 200 << 10} {
		s := newStore()
		c := content{sink: s}
		r, got, err := c.store(t.Context(), memFile(data[:n]), int64(len(data)), false, nil)
		must(t, err)
		if want, _ := stored(t, s, data[:n], false); got != int64(n) || r != want {
			t.Errorf("%d of %d bytes were stored", got, n)
		}
	}
	c := content{sink: &store{broken: errors.New("full")}}
	var sink errSink
	if _, _, err := c.store(t.Context(), memFile(data), int64(len(data)), false, nil); !errors.As(err, &sink) {
		t.Errorf("a sink that fails: %v", err)
	}
}

// FuzzChunks: any content comes back, with holes or without, from chunks of the right sizes.
func FuzzChunks(f *testing.F) {
	f.Add(uint64(1), []byte{200, 0, 80, 7, 0, 255, 255})
	f.Add(uint64(2), []byte{0, 255, 9})
	f.Fuzz(func(t *testing.T, seed uint64, parts []byte) {
		r := rand.New(rand.NewPCG(seed, 0))
		var data []byte
		for i, p := range parts {
			switch n := int(p) << 10; {
			case len(data) > 4<<20:
			case i%3 == 0:
				data = append(data, random(r, n+int(p))...)
			case i%3 == 1:
				data = append(data, make([]byte, n+int(seed%4096))...)
			default:
				data = append(data, bytes.Repeat([]byte{p}, n)...)
			}
		}
		s := newStore()
		dense, items := stored(t, s, data, false)
		sparse, _ := stored(t, s, data, true)
		if dense != sparse {
			t.Error("a sparse file has another id than a dense one")
		}
		for _, it := range items {
			if it.size > maxChunk && !it.hole {
				t.Errorf("a chunk of %d bytes", it.size)
			}
		}
		for id, b := range s.blobs {
			if len(b) > maxChunk {
				t.Errorf("blob %x has %d bytes", id, len(b))
			}
		}
	})
}

func BenchmarkCut(b *testing.B) {
	data := random(rand.New(rand.NewPCG(1, 1)), 16<<20)
	b.SetBytes(int64(len(data)))
	before := cpu()
	for b.Loop() {
		for at := 0; at < len(data); {
			at += cut(data[at:min(len(data), at+maxChunk)])
		}
	}
	b.ReportMetric(float64(cpu()-before)/float64(b.N)/float64(len(data))*1e3, "cpu-ps/byte")
}
