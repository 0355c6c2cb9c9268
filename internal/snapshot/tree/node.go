package tree

import (
	"encoding/binary"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// Limits of what a node may hold. The decoder refuses more.
const (
	maxNode    = 1 << 20
	maxName    = 255
	maxTarget  = 4095
	maxLink    = 16 << 10
	maxXattrs  = 128 << 10
	maxWhole   = 64 << 10
	maxChunk   = 1 << 20
	maxLevel   = 16
	maxFile    = 1 << 62
	modeBits   = 0o7777
	versionOne = 1
)

// magic begins a root node. The byte after it is the version.
const magic = "HFT"

// The types of nodes in lists: of the entries of a directory, and of the chunks of a file.
const (
	entriesNode byte = 1
	chunksNode  byte = 2
)

// The bits of a mode beyond the permissions.
const (
	setUID = 0o4000
	setGID = 0o2000
	sticky = 0o1000
)

// The bits of an entry's first byte.
const (
	typeBits   = 0x03
	linkBit    = 0x04
	xattrsBit  = 0x08
	ownerShift = 4
	ownerBits  = 0x30
)

// ref names the content of a file or of a directory.
type ref struct {
	kind  refKind
	level uint8 // of the list's top node, if the content is a list
	id    pack.ID
}

type refKind uint8

const (
	refNone  refKind = 0 // an empty file or directory
	refWhole refKind = 1 // a file of one blob
	refList  refKind = 2 // a list of entries or chunks
)

func appendRef(b []byte, r ref) []byte {
	b = append(b, byte(r.kind))
	if r.kind == refList {
		b = append(b, r.level)
	}
	if r.kind != refNone {
		b = append(b, r.id[:]...)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendBody encodes an entry without its name and, for a directory, without its content.
func appendBody(b []byte, e Entry) []byte {
	head := byte(e.Type) | byte(e.Owner)<<ownerShift
	if e.Link != "" {
		head |= linkBit
	}
	if len(e.Xattrs) > 0 {
		head |= xattrsBit
	}
	b = append(b, head)
	b = binary.AppendUvarint(b, uint64(e.Mode))
	b = binary.LittleEndian.AppendUint64(b, uint64(e.Mtime))
	switch e.Type {
	case File:
		b = binary.AppendUvarint(b, uint64(e.Size))
	case Symlink:
		b = appendString(b, e.Target)
	case Dir:
	}
	if e.Link != "" {
		b = appendString(b, e.Link)
	}
	if len(e.Xattrs) > 0 {
		b = binary.AppendUvarint(b, uint64(len(e.Xattrs)))
		for _, x := range e.Xattrs {
			b = appendString(appendString(b, x.Name), x.Value)
		}
	}
	if e.Type == File {
		b = appendRef(b, e.content)
	}
	return b
}

// decoder reads the parts of a node. After an error it returns zero values.
type decoder struct {
	b   []byte
	err error
}

// refuse returns the error for a node that no encoder writes.
func refuse(format string, args ...any) error {
	return holdfast.Errorf(holdfast.KindInvalid, "snapshot.node", "a node of the snapshot's tree is damaged: "+format, args...)
}

// errDeep refuses an entry below MaxDepth.
var errDeep = refuse("it is more than %d levels deep", MaxDepth)

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = refuse(format, args...)
	}
	d.b = nil
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.fail("it ends too early")
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

// uvarint reads a number of at most limit. It refuses a number that is not in its shortest form.
func (d *decoder) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	switch {
	case n <= 0 || n > 1 && d.b[n-1] == 0:
		d.fail("a number is malformed")
		return 0
	case v > limit:
		d.fail("the number %d is more than %d", v, limit)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) string(limit int) string { return string(d.take(int(d.uvarint(uint64(limit))))) }

func (d *decoder) id() (id pack.ID) {
	copy(id[:], d.take(len(id)))
	return id
}

func (d *decoder) ref() ref {
	r := ref{kind: refKind(d.byte())}
	switch r.kind {
	case refNone:
		return r
	case refList:
		if r.level = d.byte(); r.level > maxLevel {
			d.fail("it has a list of %d levels", r.level)
		}
	case refWhole:
	default:
		d.fail("it has content of the unknown kind %d", r.kind)
	}
	r.id = d.id()
	return r
}

// validName reports whether a directory may hold the name.
func validName(s string) bool {
	return s != "" && len(s) <= maxName && s != "." && s != ".." && strings.IndexByte(s, '/') < 0 && strings.IndexByte(s, 0) < 0
}

// validPath reports whether s is a path of valid names.
func validPath(s string) bool {
	if s == "" || len(s) > maxLink {
		return false
	}
	for name := range strings.SplitSeq(s, "/") {
		if !validName(name) {
			return false
		}
	}
	return true
}

// body decodes what appendBody encodes: an entry without its name and, for a directory, without its content.
func (d *decoder) body() (e Entry) {
	head := d.byte()
	e.Type, e.Owner = Type(head&typeBits), Owner(head&ownerBits>>ownerShift)
	if e.Type == 0 || e.Owner > OwnerOther || head&^(typeBits|linkBit|xattrsBit|ownerBits) != 0 {
		d.fail("it has an entry of the unknown type %#x", head)
	}
	e.Mode = uint16(d.uvarint(modeBits))
	if b := d.take(8); b != nil {
		e.Mtime = int64(binary.LittleEndian.Uint64(b))
	}
	switch e.Type {
	case File:
		e.Size = int64(d.uvarint(maxFile))
	case Symlink:
		e.Target = d.string(maxTarget)
		if e.Target == "" || strings.IndexByte(e.Target, 0) >= 0 {
			d.fail("a symlink cannot have the target %q", e.Target)
		}
	case Dir:
		if head&linkBit != 0 {
			d.fail("it has a directory that is a hard link")
		}
	}
	if head&linkBit != 0 {
		if e.Link = d.string(maxLink); !validPath(e.Link) {
			d.fail("it has a hard link to %q", e.Link)
		}
	}
	if head&xattrsBit != 0 {
		if e.Type == Symlink {
			d.fail("it has a symlink with extended attributes")
		}
		e.Xattrs = d.xattrs()
	}
	if e.Type == File {
		e.content = d.ref()
		if e.content.kind != wantContent(e.Size) {
			d.fail("a file of %d bytes has content of kind %d", e.Size, e.content.kind)
		}
	}
	return e
}

// wantContent returns how a file of size bytes must be stored: nothing, one blob, or a list of chunks.
func wantContent(size int64) refKind {
	switch {
	case size == 0:
		return refNone
	case size <= maxWhole:
		return refWhole
	}
	return refList
}

func (d *decoder) xattrs() (out []rooted.Xattr) {
	total, n := 0, d.uvarint(maxXattrs)
	if n == 0 {
		d.fail("it has an empty list of extended attributes")
	}
	for range n {
		x := rooted.Xattr{Name: d.string(maxName), Value: d.string(maxXattrs)}
		if d.err != nil {
			return nil
		}
		total += len(x.Name) + len(x.Value)
		if !strings.HasPrefix(x.Name, "user.") || len(x.Name) == len("user.") || strings.IndexByte(x.Name, 0) >= 0 ||
			total > maxXattrs || len(out) > 0 && out[len(out)-1].Name >= x.Name {
			d.fail("the extended attribute %q is not valid or not in order", x.Name)
			return nil
		}
		out = append(out, x)
	}
	return out
}

// entry decodes a whole entry. The top directory must have no name, any other entry must have one.
func (d *decoder) entry(top bool) Entry {
	name := d.string(maxName)
	e := d.body()
	e.Name = name
	if top && (name != "" || e.Type != Dir) || !top && !validName(name) {
		d.fail("an entry cannot have the name %q", name)
	}
	if e.Type == Dir {
		if e.content = d.ref(); e.content.kind == refWhole {
			d.fail("it has a directory with the content of a file")
		}
	}
	return e
}

// appendRoot encodes the root node. body is the entry of the top directory as appendBody encodes it.
func appendRoot(b, body []byte, content ref) []byte {
	b = append(append(b, magic...), versionOne, 0)
	return appendRef(append(b, body...), content)
}

// decodeRoot returns the entry of the top directory that a root node holds.
func decodeRoot(b []byte) (Entry, error) {
	if len(b) > maxNode || len(b) <= len(magic) || string(b[:len(magic)]) != magic {
		return Entry{}, refuse("it is not the root of a tree")
	}
	if v := b[len(magic)]; v != versionOne {
		return Entry{}, holdfast.Errorf(holdfast.KindInvalid, "snapshot.node",
			"the snapshot has version %d of the format, and this server reads version %d", v, versionOne).
			WithHint("use a newer release of holdfast")
	}
	d := &decoder{b: b[len(magic)+1:]}
	e := d.entry(true)
	if len(d.b) > 0 {
		d.fail("%d bytes follow its end", len(d.b))
	}
	return e, d.err
}

// item is one element of a list: an entry or a chunk in a node of level 0, and a node of the level below in any other.
type item struct {
	// entry is set in nodes of level 0 of a list of entries. In nodes above only its name is set: the last name below.
	entry Entry
	// size is the length of a chunk, or of all chunks of the node below.
	size int64
	hole bool
	id   pack.ID
}

// decodeList returns the items of a node of a list. A node has at least one item.
func decodeList(b []byte, kind byte, level uint8) ([]item, error) {
	if len(b) > maxNode || len(b) < 3 || b[0] != kind || b[1] != level {
		return nil, refuse("it is not a node of type %d on level %d", kind, level)
	}
	d := &decoder{b: b[2:]}
	var out []item
	for len(d.b) > 0 {
		var it item
		switch {
		case kind == entriesNode && level == 0:
			it.entry = d.entry(false)
		case kind == entriesNode:
			if it.entry.Name = d.string(maxName); !validName(it.entry.Name) {
				d.fail("a node below it cannot end with the name %q", it.entry.Name)
			}
			it.id = d.id()
		case level == 0:
			v := d.uvarint(maxFile<<1 | 1)
			it.size, it.hole = int64(v>>1), v&1 != 0
			if !it.hole {
				it.id = d.id()
			}
			if it.size == 0 || !it.hole && it.size > maxChunk || it.hole && len(out) > 0 && out[len(out)-1].hole {
				d.fail("a chunk cannot have %d bytes here", it.size)
			}
		default:
			if it.size = int64(d.uvarint(maxFile)); it.size == 0 {
				d.fail("it has an empty node below it")
			}
			it.id = d.id()
		}
		if kind == entriesNode && len(out) > 0 && out[len(out)-1].entry.Name >= it.entry.Name {
			d.fail("the name %q is not in order", it.entry.Name)
		}
		if d.err != nil {
			return nil, d.err
		}
		out = append(out, it)
	}
	return out, nil
}
