package tree

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

var update = flag.Bool("update", false, "write the golden files")

// encode encodes an entry as it is in a node.
func encode(e Entry) []byte {
	b := appendBody(appendString(nil, e.Name), e)
	if e.Type == Dir {
		b = appendRef(b, e.content)
	}
	return b
}

func idOf(b byte) (id pack.ID) {
	for i := range id {
		id[i] = b + byte(i)
	}
	return id
}

// everything are entries with every field that an entry may have.
func everything() []Entry {
	list := ref{kind: refList, level: 1, id: idOf(0x40)}
	return []Entry{
		{Name: "\x01", Type: File, Mode: 0o644, Mtime: -1},
		{Name: "a b", Type: File, Mode: 0o4755, Owner: OwnerBoxd, Mtime: 1_800_000_000_123_456_789, Size: 300, content: ref{kind: refWhole, id: idOf(0x10)}},
		{Name: "b", Type: File, Mode: 0o600, Owner: OwnerOther, Size: 5 << 30, content: list, Xattrs: []rooted.Xattr{
			{Name: "user.a", Value: "\x00\xff"}, {Name: "user.b"},
		}},
		{Name: "c", Type: File, Mode: 0o644, Size: 1, Link: "a b/c", content: ref{kind: refWhole, id: idOf(0x20)}},
		{Name: "d", Type: Dir, Mode: 0o1777, Xattrs: []rooted.Xattr{{Name: "user.a", Value: "x"}}},
		{Name: "e", Type: Dir, Mode: 0o2755, content: list},
		{Name: "f", Type: Symlink, Mode: 0o777, Target: "../../etc/passwd", Mtime: 7},
		{Name: "g\xff", Type: Symlink, Mode: 0o777, Target: "f", Link: "f"},
	}
}

// TestGolden: the bytes of nodes, and the places where lists and files are cut, are those of the golden file.
func TestGolden(t *testing.T) {
	var out strings.Builder
	line := func(name string, b []byte) { fmt.Fprintf(&out, "%s %s\n", name, hex.EncodeToString(b)) }
	top := Entry{Type: Dir, Mode: 0o755, Mtime: 1_700_000_000_000_000_000, content: ref{kind: refList, id: idOf(0)}}
	root := appendRoot(nil, appendBody(nil, top), top.content)
	line("root", root)
	if e, err := decodeRoot(root); err != nil || !bytes.Equal(encode(e), encode(top)) {
		t.Errorf("the root is %+v, %v", e, err)
	}
	s := newStore()
	entries := &lister{sink: s, kind: entriesNode}
	for _, e := range everything() {
		must(t, entries.addEntry(e.Name, encode(e)))
	}
	small, err := entries.done()
	must(t, err)
	line("entries", s.blobs[small.id])

	entries = &lister{sink: s, kind: entriesNode}
	for i := range 3000 {
		e := Entry{Name: fmt.Sprintf("file-%04d", i), Type: File, Mode: 0o644, Size: 1, content: ref{kind: refWhole, id: idOf(byte(i))}}
		must(t, entries.addEntry(e.Name, encode(e)))
	}
	many, err := entries.done()
	must(t, err)
	line(fmt.Sprintf("entries of level %d", many.level), s.blobs[many.id])

	c := content{sink: s}
	data := make([]byte, 0, 3<<20)
	data = append(data, random(rand.New(rand.NewPCG(1, 1)), 1<<20)...)
	data = append(data, make([]byte, 200<<10)...)
	data = append(data, random(rand.New(rand.NewPCG(2, 2)), 1<<20+5)...)
	file, n, err := c.store(t.Context(), memFile(data), int64(len(data)), false, nil)
	must(t, err)
	if n != int64(len(data)) {
		t.Errorf("%d bytes were stored", n)
	}
	line(fmt.Sprintf("chunks of level %d", file.level), s.blobs[file.id])
	items, err := decodeList(s.blobs[file.id], chunksNode, file.level)
	must(t, err)
	for _, it := range items {
		fmt.Fprintf(&out, "chunk of %d hole %t\n", it.size, it.hole)
	}

	const golden = "testdata/golden.txt"
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(golden, []byte(out.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if string(want) != out.String() {
		t.Errorf("the nodes are\n%s\nwant\n%s", out.String(), want)
	}
}

func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		if i%8 == 0 {
			v := r.Uint64()
			for j := i; j < min(i+8, n); j++ {
				b[j] = byte(v >> (8 * (j - i)))
			}
		}
	}
	return b
}

// hostile returns bytes of entries that no encoder writes.
func hostile() map[string][]byte {
	file := Entry{Name: "f", Type: File, Mode: 0o644, Size: 1, content: ref{kind: refWhole, id: idOf(1)}}
	with := func(change func(*Entry)) []byte {
		e := file
		change(&e)
		return encode(e)
	}
	xattrs := func(x ...rooted.Xattr) []byte { return with(func(e *Entry) { e.Xattrs = x }) }
	out := map[string][]byte{
		"a path that climbs":         with(func(e *Entry) { e.Name = ".." }),
		"a name of the directory":    with(func(e *Entry) { e.Name = "." }),
		"no name":                    with(func(e *Entry) { e.Name = "" }),
		"a path as a name":           with(func(e *Entry) { e.Name = "a/b" }),
		"an absolute path as a name": with(func(e *Entry) { e.Name = "/etc" }),
		"a name with a NUL":          with(func(e *Entry) { e.Name = "a\x00b" }),
		"a name that is too long":    with(func(e *Entry) { e.Name = strings.Repeat("n", 256) }),
		"no type":                    with(func(e *Entry) { e.Type = 0 }),
		"an unknown owner":           with(func(e *Entry) { e.Owner = 3 }),
		"a mode with a type":         with(func(e *Entry) { e.Mode = 0o100644 }),
		"a size without content":     with(func(e *Entry) { e.content = ref{} }),
		"content without a size":     with(func(e *Entry) { e.Size = 0 }),
		"a list for one byte":        with(func(e *Entry) { e.content = ref{kind: refList, id: idOf(1)} }),
		"one blob for many bytes":    with(func(e *Entry) { e.Size = maxWhole + 1 }),
		"too many levels":            with(func(e *Entry) { e.Size, e.content = 1<<20, ref{kind: refList, level: 17} }),
		"an unknown kind of content": with(func(e *Entry) { e.content.kind = 3 }),
		"an empty target":            with(func(e *Entry) { *e = Entry{Name: "l", Type: Symlink} }),
		"a target with a NUL":        with(func(e *Entry) { *e = Entry{Name: "l", Type: Symlink, Target: "a\x00"} }),
		"a target that is too long":  with(func(e *Entry) { *e = Entry{Name: "l", Type: Symlink, Target: strings.Repeat("t", 4096)} }),
		"a link that climbs":         with(func(e *Entry) { e.Link = "a/../../b" }),
		"a link to the root":         with(func(e *Entry) { e.Link = "/etc/passwd" }),
		"a link to a NUL":            with(func(e *Entry) { e.Link = "a\x00" }),
		"a link that is too long":    with(func(e *Entry) { e.Link = strings.Repeat("l/", maxLink/2) + "l" }),
		"a directory that is a link": with(func(e *Entry) { *e = Entry{Name: "d", Type: Dir, Link: "a"} }),
		"a directory with one blob":  with(func(e *Entry) { *e = Entry{Name: "d", Type: Dir, content: ref{kind: refWhole}} }),
		"a symlink with attributes": with(func(e *Entry) {
			*e = Entry{Name: "l", Type: Symlink, Target: "a", Xattrs: []rooted.Xattr{{Name: "user.a"}}}
		}),
		"an attribute of the system": xattrs(rooted.Xattr{Name: "security.capability", Value: "x"}),
		"an attribute without name":  xattrs(rooted.Xattr{Name: "user."}),
		"unsorted attributes":        xattrs(rooted.Xattr{Name: "user.b"}, rooted.Xattr{Name: "user.a"}),
		"an attribute twice":         xattrs(rooted.Xattr{Name: "user.a"}, rooted.Xattr{Name: "user.a"}),
		"attributes that are long":   xattrs(rooted.Xattr{Name: "user.a", Value: strings.Repeat("v", maxXattrs)}),
		"a cut entry":                encode(file)[:20],
		"a long spelling of 1":       {0x81, 0x00, 'f', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"doubled names":              append(encode(file), encode(file)...),
		"unsorted names":             append(encode(Entry{Name: "g", Type: Dir}), encode(file)...),
	}
	big := encode(file)
	big[2] |= 0x80
	out["an unknown flag"] = big
	return out
}

// TestHostileNodes: what no encoder writes is refused.
func TestHostileNodes(t *testing.T) {
	for name, b := range hostile() {
		if items, err := decodeList(append([]byte{entriesNode, 0}, b...), entriesNode, 0); err == nil {
			t.Errorf("%s was taken for %+v", name, items)
		} else {
			wantKind(t, err, holdfast.KindInvalid, "tree is damaged")
		}
	}
	id := string(make([]byte, 32))
	for name, c := range map[string]struct {
		kind  byte
		level uint8
		b     string
	}{
		"another type":       {entriesNode, 0, "\x02\x00\x01"},
		"another level":      {entriesNode, 1, "\x01\x00" + string(encode(everything()[0]))},
		"no item":            {chunksNode, 0, "\x02\x00"},
		"an empty chunk":     {chunksNode, 0, "\x02\x00\x00" + id},
		"an empty hole":      {chunksNode, 0, "\x02\x00\x01"},
		"two holes":          {chunksNode, 0, "\x02\x00\x03\x03"},
		"a chunk of 2 MiB":   {chunksNode, 0, "\x02\x00\x80\x80\x80\x02" + id},
		"a length beyond":    {chunksNode, 1, "\x02\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + id},
		"an empty node":      {chunksNode, 1, "\x02\x01\x00" + id},
		"a node without id":  {chunksNode, 1, "\x02\x01\x05"},
		"a node with a path": {entriesNode, 1, "\x01\x01\x03a/b" + id},
		"unsorted nodes":     {entriesNode, 1, "\x01\x01\x01b" + id + "\x01a" + id},
		"more than 1 MiB":    {chunksNode, 0, "\x02\x00" + strings.Repeat("\x02"+id, 1<<15)},
	} {
		if items, err := decodeList([]byte(c.b), c.kind, c.level); err == nil {
			t.Errorf("%s was taken for %+v", name, items)
		}
	}
	root := appendRoot(nil, appendBody(nil, Entry{Type: Dir}), ref{})
	for name, b := range map[string][]byte{
		"nothing": nil, "a cut magic": root[:2], "no version": root[:3], "more": append(bytes.Clone(root), 0),
		"a name": append(append([]byte(magic), 1), encode(Entry{Name: "n", Type: Dir})...),
		"a file": append(append([]byte(magic), 1), encode(Entry{Type: File})...),
	} {
		if e, err := decodeRoot(b); err == nil {
			t.Errorf("%s was taken for %+v", name, e)
		}
	}
	root[3] = 2
	_, err := decodeRoot(root)
	wantKind(t, err, holdfast.KindInvalid, "version 2")
}

// tie stores a root over a list node, and returns its id.
func tie(t testing.TB, s *store, level uint8, node []byte) pack.ID {
	id, err := s.Put(pack.Node, node)
	must(t, err)
	root, err := s.Put(pack.Node, appendRoot(nil, appendBody(nil, Entry{Type: Dir, Mode: 0o755}), ref{kind: refList, level: level, id: id}))
	must(t, err)
	return root
}

// TestListsThatLie: names that are out of order across nodes, names and lengths that the node above does not say, blobs of
// another length, and too many levels of directories are refused while a tree is read.
func TestListsThatLie(t *testing.T) {
	s := newStore()
	put := func(kind pack.Kind, b []byte) string {
		id, err := s.Put(kind, b)
		must(t, err)
		return string(id[:])
	}
	leaf := func(names ...string) string {
		b := []byte{entriesNode, 0}
		for _, n := range names {
			b = append(b, encode(Entry{Name: n, Type: Dir})...)
		}
		return put(pack.Node, b)
	}
	file := func(size int64, node string) pack.ID {
		id := pack.ID([]byte(put(pack.Node, []byte(node))))
		return tie(t, s, 0, append([]byte{entriesNode, 0}, encode(Entry{Name: "f", Type: File, Size: size, content: ref{kind: refList, level: node[1], id: id}})...))
	}
	data := put(pack.Data, make([]byte, 100_000))
	short := put(pack.Data, []byte("short"))
	deep := Entry{Name: "d", Type: Dir}
	for range MaxDepth + 1 {
		id, err := s.Put(pack.Node, append([]byte{entriesNode, 0}, encode(deep)...))
		must(t, err)
		deep.content = ref{kind: refList, id: id}
	}
	for name, root := range map[string]pack.ID{
		"names across nodes": tie(t, s, 1, []byte("\x01\x01\x01b"+leaf("a", "b")+"\x01c"+leaf("a", "c"))),
		"another last name":  tie(t, s, 1, []byte("\x01\x01\x01c"+leaf("a", "b"))),
		"a longer list":      file(100_000, "\x02\x00\xc2\x9a\x0c"+data),
		"a shorter list":     file(200_000, "\x02\x00\xc0\x9a\x0c"+data),
		"a short blob":       file(100_000, "\x02\x00\xc0\x9a\x0c"+short),
		"too deep":           tie(t, s, 0, append([]byte{entriesNode, 0}, encode(deep)...)),
		"a missing node":     tie(t, s, 1, []byte("\x01\x01\x01b"+string(make([]byte, 32)))),
		"a cycle of levels":  tie(t, s, 2, []byte("\x01\x02\x01b"+leaf("b"))),
	} {
		dir := elsewhere(t)
		if err := Restore(t.Context(), s, root, dir, me()); err == nil {
			t.Errorf("%s: the tree was restored", name)
		}
		if _, err := os.Lstat(dir); err == nil {
			t.Errorf("%s: something is left", name)
		}
		if name == "a short blob" {
			continue
		}
		if err := Blobs(t.Context(), s, root, func(pack.Kind, pack.ID) bool { return true }); err == nil {
			t.Errorf("%s: the blobs were listed", name)
		}
	}
}

// FuzzNode: decoding any bytes ends, and what is accepted is encoded as the same bytes.
func FuzzNode(f *testing.F) {
	for _, b := range hostile() {
		f.Add(append([]byte{entriesNode, 0}, b...))
	}
	all := []byte{entriesNode, 0}
	for _, e := range everything() {
		all = append(all, encode(e)...)
	}
	f.Add(all)
	f.Add([]byte("\x01\x01\x01b" + string(make([]byte, 32))))
	f.Add([]byte("\x02\x00\x02" + string(make([]byte, 32)) + "\x03"))
	f.Add([]byte("\x02\x01\x02" + string(make([]byte, 32))))
	f.Add(appendRoot(nil, appendBody(nil, Entry{Type: Dir}), ref{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, err := decodeRoot(b); err == nil {
			if again := appendRoot(nil, appendBody(nil, e), e.content); !bytes.Equal(again, b) {
				t.Errorf("%x became %x", b, again)
			}
		}
		if len(b) < 2 {
			return
		}
		items, err := decodeList(b, b[0], b[1])
		if err != nil || b[0] != entriesNode && b[0] != chunksNode {
			return
		}
		again := []byte{b[0], b[1]}
		for _, it := range items {
			switch {
			case b[0] == entriesNode && b[1] == 0:
				again = append(again, encode(it.entry)...)
			case b[0] == entriesNode:
				again = append(appendString(again, it.entry.Name), it.id[:]...)
			default:
				again = append(again, chunkItem(it, b[1])...)
			}
		}
		if !bytes.Equal(again, b) {
			t.Errorf("%x became %x", b, again)
		}
	})
}
