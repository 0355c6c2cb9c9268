package pack_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/blake3"

	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

var update = flag.Bool("update", false, "rewrite the golden packs")

// steady is a source of random bytes that are always the same.
type steady struct{ next byte }

func (s *steady) Read(b []byte) (int, error) {
	for at := range b {
		s.next++
		b[at] = s.next
	}
	return len(b), nil
}

// golden are the contents of the golden packs.
func golden() (data, nodes [][]byte) {
	return [][]byte{
		{},
		[]byte("hello\n"),
		bytes.Repeat([]byte("a line of a file\n"), 200),
		bytes.Repeat([]byte("a large file\n"), 6000),
	}, [][]byte{[]byte("node one"), {0xff, 0, 1}}
}

func writeGolden(t *testing.T, dir string, keys pack.Keys) (pack.Info, []blob) {
	t.Helper()
	s, err := pack.Open(dir, keys, pack.Config{Rand: &steady{}})
	if err != nil {
		t.Fatal(err)
	}
	w := s.Writer(nil)
	var all []blob
	data, nodes := golden()
	for _, b := range data {
		all = append(all, blob{put(t, w, pack.Data, b), pack.Data, b})
	}
	for _, b := range nodes {
		all = append(all, blob{put(t, w, pack.Node, b), pack.Node, b})
	}
	return commit(t, w, pack.Record{Data: []byte("golden record")})[0], all
}

// TestGolden: the golden packs of version 1 can be read for ever, and the writer writes the same
// bytes. Only if a new release of the compressor writes other bytes may they be rewritten, with
// -update.
func TestGolden(t *testing.T) {
	both(t, func(t *testing.T, keys pack.Keys) {
		dir := filepath.Join("testdata", filepath.Base(t.Name()))
		if *update {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			writeGolden(t, dir, keys)
		}
		fresh := t.TempDir()
		in, all := writeGolden(t, fresh, keys)
		s, err := pack.Open(dir, keys, pack.Config{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		files, err := s.List()
		if err != nil || len(files) != 1 {
			t.Fatalf("%d golden packs, %v", len(files), err)
		}
		holds(t, s, pack.Set{files[0].ID}, all)
		for r, err := range s.Records(t.Context()) {
			if err != nil || string(r.Data) != "golden record" {
				t.Errorf("record %q, %v", r.Data, err)
			}
		}
		if files[0].ID != in.ID {
			t.Errorf("the writer wrote pack %s, the golden one is %s", in.ID, files[0].ID)
		}
		want, err := os.ReadFile(s.Path(files[0].ID))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(strings.Replace(s.Path(in.ID), dir, fresh, 1))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("the writer wrote %d bytes that differ from the golden pack, %v", len(got), err)
		}
		byTheDocument(t, in.ID, want, keys, all)
	})
}

// byTheDocument reads a pack with nothing but docs/format/pack.md.
func byTheDocument(t *testing.T, id pack.PackID, file []byte, keys pack.Keys, want []blob) {
	t.Helper()
	u32 := func(b []byte) int { return int(binary.LittleEndian.Uint32(b)) }
	hash := func(key []byte, what byte, parts ...[]byte) []byte {
		h, err := blake3.NewKeyed(key)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = h.Write(append(bytes.Join(parts, nil), what))
		return h.Sum(nil)
	}
	header, trailer := file[:32], file[len(file)-44:]
	footer := file[len(file)-44-u32(trailer) : len(file)-44]
	if string(header[:7]) != "HFPACK\x01" || !bytes.Equal(hash(keys.ID[:], 0x11, header), id[:]) || string(trailer[36:]) != "HFPACKED" ||
		!bytes.Equal(hash(keys.ID[:], 0x14, header, footer), trailer[4:36]) ||
		!bytes.Equal(hash(keys.ID[:], 0x12, keys.Seal)[:8], header[8:16]) {
		t.Fatal("header or trailer")
	}
	decrypt := func(_ uint32, b []byte) []byte { return b }
	if header[7] == 1 {
		block, err := aes.NewCipher(hash(keys.Seal, 0x13, header[16:]))
		if err != nil {
			t.Fatal(err)
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			t.Fatal(err)
		}
		decrypt = func(part uint32, b []byte) []byte {
			out, err := aead.Open(nil, append(binary.LittleEndian.AppendUint32(nil, part), make([]byte, 8)...), b, header)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
	}
	footer = decrypt(0xffffffff, footer)
	count, blobs := u32(footer), u32(footer[4:])
	table := footer[20+48*count:]
	if u32(footer[8:]) != 1 || string(table[44*blobs+4:]) != "golden record" || blobs != len(want) {
		t.Fatalf("a footer with %d blobs", blobs)
	}
	for _, b := range want {
		at := bytes.Index(table, b.id[:])
		entry := table[at:][:44]
		n := u32(entry[32:])
		block := footer[20+48*n:][:48]
		stored := file[u32(block):][:u32(block[4:])]
		if !bytes.Equal(hash(keys.ID[:], 0x10, stored), block[16:]) || block[12] != byte(b.kind) {
			t.Errorf("block %d", n)
		}
		raw := decrypt(uint32(n), stored)
		if block[13] == 1 {
			d, err := zstd.NewReader(bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			if raw, err = io.ReadAll(d); err != nil {
				t.Fatal(err)
			}
			d.Close()
		}
		data := raw[u32(entry[36:]):][:u32(entry[40:])]
		if !bytes.Equal(data, b.data) || !bytes.Equal(hash(keys.ID[:], byte(b.kind), data), b.id[:]) ||
			len(raw) != u32(block[8:]) {
			t.Errorf("blob %s has %d bytes", b.id, len(data))
		}
	}
}
