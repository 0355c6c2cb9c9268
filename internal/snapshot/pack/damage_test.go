package pack_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// entryName is how errors name the damaged part of a pack.
var entryName = regexp.MustCompile(`: (file|header|footer|trailer|block \d+): `)

// all keeps every blob and record.
var all = pack.Live{Blob: func(pack.ID) bool { return true }}

// victim is a pack that a test damages.
type victim struct {
	dir   string
	keys  pack.Keys
	info  pack.Info
	path  string
	store *pack.Store // reads the pack with keys
	n     int         // calls of found
	whole []byte
	blobs []blob
}

func newVictim(t testing.TB, keys pack.Keys) *victim {
	t.Helper()
	v := &victim{dir: t.TempDir(), keys: keys}
	s := open(t, v.dir, keys)
	w := s.Writer(nil)
	v.blobs = blobs(t, w, 3, 6)
	v.info = commit(t, w, pack.Record{Data: []byte("the record")})[0]
	v.path = s.Path(v.info.ID)
	var err error
	if v.whole, err = os.ReadFile(v.path); err != nil {
		t.Fatal(err)
	}
	return v
}

// footer returns the number of bytes of the footer and the trailer.
func (v *victim) footer() int {
	return 44 + int(binary.LittleEndian.Uint32(v.whole[len(v.whole)-44:]))
}

func (v *victim) write(t testing.TB, content []byte) {
	t.Helper()
	if err := os.WriteFile(v.path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// found checks that damage is found: Verify fails with an error that names the pack and the
// entry, and each blob is read as it was put or not at all.
func (v *victim) found(t testing.TB, what string) {
	t.Helper()
	if v.store == nil {
		v.store = open(t, v.dir, v.keys)
	}
	s := v.store
	s.Release()
	err := s.Verify(t.Context(), v.info.ID)
	if !errors.Is(err, pack.ErrDamaged) && !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Errorf("%s: %v", what, err)
		return
	}
	named(t, err, v.info.ID.String())
	if !entryName.MatchString(err.Error()) {
		t.Errorf("%s: %v names no entry", what, err)
	}
	r, lost := s.In(pack.Set{v.info.ID}), 0
	for _, b := range v.blobs {
		got, err := r.Get(t.Context(), b.id)
		switch {
		case err != nil:
			named(t, err, v.info.ID.String(), b.id.String())
			lost++
		case !bytes.Equal(got, b.data):
			t.Errorf("%s: blob %s came back with other bytes", what, b.id)
		}
	}
	if lost == 0 {
		t.Errorf("%s: %v, and every blob could be read", what, err)
	}
	if v.n++; v.n%10 != 1 {
		return
	}
	if _, err := s.Repack(t.Context(), pack.Set{v.info.ID}, all); err == nil {
		t.Errorf("%s: repacked", what)
	}
}

// TestDamageIsFound: 1,000 flipped bits, and files that are cut, longer, or in another order.
func TestDamageIsFound(t *testing.T) {
	both(t, func(t *testing.T, keys pack.Keys) {
		v := newVictim(t, keys)
		r := rand.New(rand.NewPCG(5, 6))
		for n := range 500 {
			at := r.IntN(len(v.whole))
			if n < 32 {
				at = n // the header
			} else if n < 200 {
				at = len(v.whole) - 1 - r.IntN(v.footer())
			}
			bit := byte(1) << r.IntN(8)
			content := bytes.Clone(v.whole)
			content[at] ^= bit
			v.write(t, content)
			v.found(t, "bit "+string('0'+bit)+" flipped")
		}
		for range 100 {
			v.write(t, v.whole[:r.IntN(len(v.whole))])
			v.found(t, "cut")
			from := r.IntN(len(v.whole))
			v.write(t, append(bytes.Clone(v.whole[:from]), v.whole[from+1+r.IntN(min(100, len(v.whole)-from)):]...))
			v.found(t, "a piece is missing")
		}
		v.write(t, append(bytes.Clone(v.whole), 0))
		v.found(t, "one byte more")
		v.write(t, append(bytes.Clone(v.whole), v.whole...))
		v.found(t, "twice")
		v.write(t, nil)
		v.found(t, "empty")
		v.write(t, make([]byte, len(v.whole)))
		v.found(t, "zeros")
	})
}

// TestReorderedBlocksAreFound: two blocks of the same length that changed places.
func TestReorderedBlocksAreFound(t *testing.T) {
	both(t, func(t *testing.T, keys pack.Keys) {
		v := &victim{dir: t.TempDir(), keys: keys}
		s := open(t, v.dir, keys)
		w := s.Writer(nil)
		r := rand.NewChaCha8([32]byte{})
		const size = 70_000
		for range 3 {
			data := make([]byte, size)
			_, _ = r.Read(data) // never fails
			v.blobs = append(v.blobs, blob{put(t, w, pack.Data, data), pack.Data, data})
		}
		v.info = commit(t, w, pack.Record{})[0]
		v.path = s.Path(v.info.ID)
		whole, err := os.ReadFile(v.path)
		if err != nil {
			t.Fatal(err)
		}
		stored := size
		if keys.Seal != nil {
			stored += 16
		}
		for a := range 3 {
			b := (a + 1) % 3
			content := bytes.Clone(whole)
			copy(content[32+a*stored:][:stored], whole[32+b*stored:])
			copy(content[32+b*stored:][:stored], whole[32+a*stored:])
			v.write(t, content)
			v.found(t, "blocks changed places")
		}
		v.write(t, whole)
		holds(t, s, pack.Set{v.info.ID}, v.blobs)
	})
}

// TestWrongKeys: a pack that was written with other keys is refused, and so is an encrypted one
// without a key.
func TestWrongKeys(t *testing.T) {
	other := bytes.Repeat([]byte{8}, 32)
	for _, c := range []struct {
		name        string
		write, read pack.Keys
	}{
		{"another hash key", plain, pack.Keys{ID: [32]byte{9}}},
		{"another hash key, sealed", sealed, pack.Keys{ID: [32]byte{9}, Seal: sealed.Seal}},
		{"another seal key", sealed, pack.Keys{ID: sealed.ID, Seal: other}},
		{"no seal key", sealed, plain},
	} {
		v := newVictim(t, c.write)
		v.keys = c.read
		v.found(t, c.name)
	}
	v := newVictim(t, plain)
	holds(t, open(t, v.dir, sealed), pack.Set{v.info.ID}, v.blobs)
}

// TestSwappedFilesAreFound: each of two whole packs has the other's name.
func TestSwappedFilesAreFound(t *testing.T) {
	v := newVictim(t, sealed)
	s := open(t, v.dir, sealed)
	w := s.Writer(nil)
	blobs(t, w, 9, 14)
	in := commit(t, w, pack.Record{})[0]
	other, err := os.ReadFile(s.Path(in.ID))
	if err != nil {
		t.Fatal(err)
	}
	v.write(t, other)
	v.found(t, "another pack's content")
	_, err = open(t, v.dir, sealed).Stat(v.info.ID)
	named(t, err, "it has the content of pack "+in.ID.String())
}

// TestNewerVersion: a pack of a newer release is refused by its name when the directory is opened,
// and by its header when it is read.
func TestNewerVersion(t *testing.T) {
	v := newVictim(t, plain)
	content := bytes.Clone(v.whole)
	content[6] = 2
	v.write(t, content)
	v.found(t, "version 2")
	err := open(t, v.dir, plain).Verify(t.Context(), v.info.ID)
	wantKind(t, err, holdfast.KindUnavailable)
	named(t, err, "version 2 is newer")
	if holdfast.HintOf(err) == "" {
		t.Error("no hint")
	}
	name := strings.Replace(filepath.Base(v.path), ".v1.", ".v2.", 1)
	if err := os.Rename(v.path, filepath.Join(v.dir, name)); err != nil {
		t.Fatal(err)
	}
	for _, readOnly := range []bool{false, true} {
		_, err = pack.Open(v.dir, plain, pack.Config{ReadOnly: readOnly})
		wantKind(t, err, holdfast.KindUnavailable)
		named(t, err, name)
	}
}

// TestUndamagedCopyIsUsed: if one copy of a blob is damaged, Get returns the copy of another pack. A
// writer writes the blobs of an unreadable known pack again, and reports the pack.
func TestUndamagedCopyIsUsed(t *testing.T) {
	v := newVictim(t, plain)
	s := open(t, v.dir, plain)
	w := s.Writer(nil)
	blobs(t, w, 3, 6)
	copied := commit(t, w, pack.Record{})[0]
	content := bytes.Clone(v.whole)
	for at := 32; at < len(content)-v.footer(); at++ {
		content[at] ^= 1
	}
	v.write(t, content)
	r := open(t, v.dir, plain).In(pack.Set{v.info.ID, copied.ID})
	for _, b := range v.blobs {
		if got, err := r.Get(t.Context(), b.id); err != nil || !bytes.Equal(got, b.data) {
			t.Errorf("%s: %v", b.id, err)
		}
	}
	v.write(t, v.whole[:len(v.whole)-1])
	w = open(t, v.dir, plain).Writer(pack.Set{v.info.ID})
	again := blobs(t, w, 3, 6)
	infos := commit(t, w, pack.Record{})
	holds(t, s, set(infos...), again)
	named(t, w.Unread(), v.info.ID.String())
	err := s.Verify(t.Context(), v.info.ID)
	if !errors.Is(err, pack.ErrDamaged) {
		t.Errorf("verify: %v", err)
	}
	var bad []pack.PackID
	for r, err := range s.Records(t.Context()) {
		if err != nil {
			bad = append(bad, r.Pack)
		}
	}
	if len(bad) != 1 || bad[0] != v.info.ID {
		t.Errorf("records: errors for %v", bad)
	}
}

// TestRepackKeepsDamageOut: a block that repacking would take as it is, without decompressing it, is
// refused if it is damaged, and nothing is written.
func TestRepackKeepsDamageOut(t *testing.T) {
	both(t, func(t *testing.T, keys pack.Keys) {
		dir := t.TempDir()
		s := open(t, dir, keys)
		w := s.Writer(nil)
		data := make([]byte, 400<<10)
		_, _ = rand.NewChaCha8([32]byte{}).Read(data) // never fails
		put(t, w, pack.Data, data)
		packs := set(commit(t, w, pack.Record{})...)
		infos, err := s.Repack(t.Context(), packs, all)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Remove(set(infos...)...); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(s.Path(packs[0]))
		if err != nil {
			t.Fatal(err)
		}
		content[1000] ^= 1
		if err := os.WriteFile(s.Path(packs[0]), content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = s.Repack(t.Context(), packs, all)
		if !errors.Is(err, pack.ErrDamaged) {
			t.Errorf("repacked: %v", err)
		}
		named(t, err, packs[0].String(), "block 0")
		if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
			t.Errorf("%d files, %v", len(names), err)
		}
	})
}
