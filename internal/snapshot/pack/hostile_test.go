package pack

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// build returns the bytes of a pack with a footer of the test's own, signed with the keys.
func sign(k *keys, body, footer []byte) (PackID, []byte) {
	h := k.newHeader(make([]byte, 16))
	sum := k.sum(hashFooter, h[:], footer)
	out := append(append(h[:], body...), footer...)
	out = order.AppendUint32(out, uint32(len(footer)))
	return k.pack(&h), append(append(out, sum[:]...), tailMagic...)
}

// parts is a footer that a test makes by hand.
type parts struct {
	counts  [5]uint32
	blocks  []block
	blobs   []entry
	records []byte
}

func (p *parts) bytes() (out []byte) {
	for _, n := range p.counts {
		out = order.AppendUint32(out, n)
	}
	for _, b := range p.blocks {
		out = b.append(out)
	}
	for _, e := range p.blobs {
		out = e.append(out)
	}
	return append(out, p.records...)
}

// hostile is a plain pack of two blocks and three blobs, which a test changes before it is signed.
func hostile(k *keys) (*parts, []byte) {
	body := []byte("aabbbcccc")
	p := &parts{
		counts: [5]uint32{2, 3, 1, 6, 2},
		blocks: []block{
			{offset: 32, stored: 5, raw: 5, kind: Data, hash: k.sum(hashBlock, body[:5])},
			{offset: 37, stored: 4, raw: 4, kind: Node, hash: k.sum(hashBlock, body[5:])},
		},
		blobs: []entry{
			{id: k.blob(Data, body[:2]), block: 0, offset: 0, length: 2},
			{id: k.blob(Data, body[2:5]), block: 0, offset: 2, length: 3},
			{id: k.blob(Node, body[5:]), block: 1, offset: 0, length: 4},
		},
		records: append(order.AppendUint32(nil, 2), "rr\x00\x00"...), // with the padding
	}
	sortEntries(p.blobs)
	return p, body
}

// TestHostileFooters: a footer that breaks a rule is refused although its hash is right, and its
// numbers make the reader allocate no more than the file has.
func TestHostileFooters(t *testing.T) {
	k, err := newKeys(Keys{ID: [32]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(p *parts)
		want   string // empty: valid
	}{
		{"as it should be", func(*parts) {}, ""},
		{"more blocks than blobs", func(p *parts) { p.counts[0] = 1 << 31 }, "its length"},
		{"every number at its most", func(p *parts) {
			p.counts = [5]uint32{1<<32 - 1, 1<<32 - 1, 1<<32 - 1, 1<<32 - 1, 1<<32 - 1}
		}, "its length"},
		{"too many blobs", func(p *parts) { p.counts[1] = maxBlobs + 1 }, "its length"},
		{"blobs that are not there", func(p *parts) { p.counts[1] = maxBlobs }, "its length"},
		{"records that are not there", func(p *parts) { p.counts[3] = 1 << 31 }, "its length"},
		{"padding that is not there", func(p *parts) { p.counts[4] = 1<<32 - 1 }, "its length"},
		{"padding with content", func(p *parts) { p.records[7] = 1 }, "its padding is not zeros"},
		{"padding within the records", func(p *parts) { p.counts[3], p.counts[4] = 5, 3 }, "its padding is not zeros"},
		{"another number of records", func(p *parts) { p.counts[2] = 2 }, "the number of its records"},
		{"a long record", func(p *parts) { order.PutUint32(p.records, 1<<32-1) }, "a record has a wrong length"},
		{"a short record", func(p *parts) { order.PutUint32(p.records, 1) }, "a record is cut"},
		{"an empty record", func(p *parts) { order.PutUint32(p.records, 0) }, "a record has a wrong length"},
		{"a gap before the blocks", func(p *parts) { p.blocks[0].offset++ }, "do not follow"},
		{"blocks on each other", func(p *parts) { p.blocks[1].offset = 32 }, "do not follow"},
		{"blocks beyond the end", func(p *parts) {
			p.blocks[1].stored, p.blocks[1].raw = 1<<20, 1<<20
		}, "do not fill the file"},
		{"a block that grows without end", func(p *parts) {
			p.blocks[0].coding, p.blocks[0].raw = codingZstd, 1<<32-1
		}, "a block has a wrong length"},
		{"a block that shrinks", func(p *parts) { p.blocks[0].coding = codingZstd }, "a block has a wrong length"},
		{"a block of another length", func(p *parts) { p.blocks[0].raw = 6 }, "a block has a wrong length"},
		{"an unknown kind", func(p *parts) { p.blocks[0].kind = 3 }, "an unknown kind"},
		{"an unknown coding", func(p *parts) { p.blocks[0].coding = 2 }, "an unknown kind"},
		{"blobs out of order", func(p *parts) { p.blobs[0], p.blobs[1] = p.blobs[1], p.blobs[0] }, "not in order"},
		{"a blob twice", func(p *parts) { p.blobs[1] = p.blobs[0] }, "not in order"},
		{"a blob in no block", func(p *parts) { p.blobs[0].block = 2 }, "outside of its block"},
		{"a blob in a block that overflows", func(p *parts) { p.blobs[0].block = 1<<32 - 1 }, "outside of its block"},
		{"a blob that ends beyond", func(p *parts) { p.blobs[0].length = 1<<32 - 1 }, "outside of its block"},
		{"a blob that starts beyond", func(p *parts) { p.blobs[0].offset = 1<<32 - 1 }, "outside of its block"},
		{"bytes of no blob", func(p *parts) { p.blobs[0].length-- }, "do not fill it"},
	} {
		p, body := hostile(k)
		c.change(p)
		id, file := sign(k, body, p.bytes())
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := k.readIndex(id, bytes.NewReader(file), int64(len(file)))
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 128<<10 {
			t.Errorf("%s: %d bytes allocated", c.name, used)
		}
		got := ""
		if err != nil {
			got = err.Error()
		}
		if (err == nil) != (c.want == "") || !strings.Contains(got, c.want) ||
			err != nil && !strings.Contains(got, ": footer: ") {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}

// TestHostileBlocks: a block whose hash is right is refused if it decompresses to another length
// or its blobs are not those of their ids.
func TestHostileBlocks(t *testing.T) {
	s, err := Open(t.TempDir(), Keys{ID: [32]byte{1}}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	zeros, err := s.codec.compress(nil, make([]byte, 3<<20))
	if err != nil {
		t.Fatal(err)
	}
	short, err := s.codec.compress(nil, make([]byte, 10_000))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		body []byte
		raw  uint32
		want string
	}{
		{"a bomb", zeros, 1 << 20, "block 0: it cannot be decompressed"},
		{"too short", short, 1 << 20, "block 0: it cannot be decompressed"},
		{"no frame", []byte("nothing of the kind"), 1 << 20, "block 0: it cannot be decompressed"},
		{"another blob", short, 10_000, "block 0: blob " + ID{7}.String() + ": it does not match its id"},
	} {
		p := &parts{
			counts: [5]uint32{1, 1},
			blocks: []block{{
				offset: 32, stored: uint32(len(c.body)), raw: c.raw, kind: Data, coding: codingZstd,
				hash: s.keys.sum(hashBlock, c.body),
			}},
			blobs: []entry{{id: ID{7}, length: c.raw}},
		}
		id, file := sign(s.keys, c.body, p.bytes())
		if err := os.WriteFile(s.path(id), file, 0o600); err != nil {
			t.Fatal(err)
		}
		s.Release() // all of them have the same id
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := s.In(Set{id}).Get(t.Context(), ID{7})
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 3<<20 {
			t.Errorf("%s: %d bytes allocated", c.name, used)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d bytes, %v; want %q", c.name, len(got), err, c.want)
		}
		if err := s.Verify(t.Context(), id); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: verify: %v; want %q", c.name, err, c.want)
		}
	}
}

// FuzzPack: whatever a pack file holds, its reader returns an error or blobs of their ids, without
// a panic and in bounded memory. With signed the hashes are made right before, so that the footer
// and the blocks are reached.
func FuzzPack(f *testing.F) {
	k, err := newKeys(Keys{ID: [32]byte{1}})
	if err != nil {
		f.Fatal(err)
	}
	p, body := hostile(k)
	_, small := sign(k, body, p.bytes())
	f.Add(small, false)
	f.Add(small, true)
	packs, err := filepath.Glob("testdata/plain/*" + packSuffix)
	if err != nil || len(packs) == 0 {
		f.Fatalf("no golden pack: %v", err)
	}
	for _, name := range packs {
		golden, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(golden, true)
	}
	s := &Store{keys: k}
	f.Fuzz(func(t *testing.T, file []byte, signed bool) {
		if len(file) < headerSize+trailerSize {
			return
		}
		file = bytes.Clone(file)
		if signed {
			repair(k, file)
		}
		head := header(file[:headerSize])
		id := k.pack(&head)
		r := bytes.NewReader(file)
		x, records, err := k.readIndex(id, r, int64(len(file)))
		if err != nil {
			return
		}
		total := 0
		for _, rec := range records {
			total += len(rec)
		}
		if x.memory()+total > len(file)+1<<10 {
			t.Fatalf("an index of %d bytes and records of %d bytes from %d bytes", x.memory(), total, len(file))
		}
		for _, e := range x.ordered()[:min(100, x.blobCount())] {
			if got, ok := x.find(e.id); !ok || got != e {
				t.Fatalf("%s is not found: %+v", e.id, got)
			}
			b, data, err := k.readBlock(x, r, int(e.block))
			if err != nil {
				continue
			}
			raw, err := s.unpack(x, int(e.block), data)
			if err != nil {
				continue
			}
			if len(raw) != int(b.raw) {
				t.Fatalf("block %d has %d bytes, not %d", e.block, len(raw), b.raw)
			}
			if blob, err := k.checked(x, b.kind, e, raw); err == nil && k.blob(b.kind, blob) != e.id {
				t.Fatalf("another blob than %s", e.id)
			}
		}
	})
}

// repair makes the key check and all hashes of a plain pack right, as far as it has the parts.
func repair(k *keys, file []byte) {
	h := k.newHeader(file[16:headerSize])
	copy(file, h[:])
	tail := file[len(file)-trailerSize:]
	copy(tail[36:], tailMagic)
	length := int(order.Uint32(tail))
	if length > len(file)-headerSize-trailerSize {
		length = (length & 0xffff) % (len(file) - headerSize - trailerSize + 1)
		order.PutUint32(tail, uint32(length))
	}
	footer := file[len(file)-trailerSize-length : len(file)-trailerSize]
	if length > footerHead {
		for at := footer[footerHead:]; len(at) >= blockSize; at = at[blockSize:] {
			from, n := int64(order.Uint32(at)), int64(order.Uint32(at[4:]))
			if from+n > int64(len(file)) || at[12] < 1 || at[12] > 2 {
				break
			}
			sum := k.sum(hashBlock, file[from:from+n])
			copy(at[16:], sum[:])
		}
	}
	sum := k.sum(hashFooter, file[:headerSize], footer)
	copy(tail[4:], sum[:])
}

// FuzzPackName: a file name that is taken for a pack of this version is the name of this pack.
func FuzzPackName(f *testing.F) {
	f.Add(PackID{1}.name())
	f.Add("." + PackID{1}.name() + tempSuffix)
	f.Add(strings.Replace(PackID{1}.name(), "v1", "v01", 1))
	f.Fuzz(func(t *testing.T, name string) {
		id, ver, ok := parseName(name)
		if ok && ver == version && id.name() != name {
			t.Errorf("%q is taken for %s", name, id.name())
		}
	})
}
