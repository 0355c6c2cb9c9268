package tree

import (
	"context"
	"encoding/binary"

	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// Nodes of lists have about 8 KiB. Where one ends depends on its own items alone: so a new item changes the nodes
// around it and those above them, and no others.
const (
	leastNode  = 3 << 10
	mostNode   = 12 << 10
	meanBeyond = 4 << 10 // how many bytes more than leastNode a node has on average
)

// shortItem is how many bytes an item that is a chunk, a hole or a node needs at most.
const shortItem = maxName + len(pack.ID{}) + binary.MaxVarintLen64

// lister stores a list. Its items are added in order; done returns the reference to the top node.
type lister struct {
	sink   Sink
	kind   byte
	levels []*openNode
}

// openNode is the node of one level that still gets items.
type openNode struct {
	buf     []byte
	items   int
	last    string // name of the last item
	size    int64  // sum of the sizes of its items: the bytes of the file content that they hold
	flushed int    // how many nodes of this level are stored already
	only    pack.ID
}

func (l *lister) level(n int) *openNode {
	for len(l.levels) <= n {
		l.levels = append(l.levels, &openNode{buf: []byte{l.kind, byte(len(l.levels))}})
	}
	return l.levels[n]
}

func (l *lister) addEntry(name string, encoded []byte) error {
	return l.add(0, encoded, name, 0, hashName(name, 0))
}

func (l *lister) addChunk(id pack.ID, size int64) error {
	var b [shortItem]byte
	return l.add(0, append(binary.AppendUvarint(b[:0], uint64(size)<<1), id[:]...), "", size, binary.LittleEndian.Uint64(id[:]))
}

func (l *lister) addHole(size int64) error {
	var b [shortItem]byte
	return l.add(0, binary.AppendUvarint(b[:0], uint64(size)<<1|1), "", size, mix(uint64(size)))
}

func (l *lister) add(n int, encoded []byte, name string, size int64, hash uint64) error {
	at := l.level(n)
	if at.items > 0 && len(at.buf)+len(encoded) > mostNode {
		if err := l.flush(n); err != nil {
			return err
		}
	}
	at.buf = append(at.buf, encoded...)
	at.items++
	at.last, at.size = name, at.size+size
	// The larger the last item, the likelier the node ends: so the mean size of nodes does not depend on the size of
	// items.
	if len(at.buf) >= leastNode && hash/uint64(len(encoded)) < 1<<63/(meanBeyond/2) {
		return l.flush(n)
	}
	return nil
}

// flush stores the node of a level, and adds it to the level above.
func (l *lister) flush(n int) error {
	at := l.levels[n]
	id, err := l.sink.Put(pack.Node, at.buf)
	if err != nil {
		return err
	}
	name, size := at.last, at.size
	at.only, at.flushed = id, at.flushed+1
	at.buf, at.items, at.size = at.buf[:2], 0, 0
	var b [shortItem]byte
	if l.kind == entriesNode {
		return l.add(n+1, append(appendString(b[:0], name), id[:]...), name, 0, hashName(name, n+1))
	}
	return l.add(n+1, append(binary.AppendUvarint(b[:0], uint64(size)), id[:]...), "", size, binary.LittleEndian.Uint64(id[:]))
}

// done stores the open nodes and returns the reference to the list.
func (l *lister) done() (ref, error) {
	if len(l.levels) == 0 {
		return ref{}, nil
	}
	for n := 0; ; n++ {
		at := l.levels[n]
		if at.items > 0 {
			if at.flushed == 0 {
				id, err := l.sink.Put(pack.Node, at.buf)
				return ref{kind: refList, level: uint8(n), id: id}, err
			}
			if err := l.flush(n); err != nil {
				return ref{}, err
			}
		}
		if at.flushed == 1 {
			return ref{kind: refList, level: uint8(n), id: at.only}, nil
		}
	}
}

// hashName hashes a name for the level of a list: FNV-1a, mixed.
func hashName(name string, level int) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return mix(h + uint64(level))
}

// mix is the output function of SplitMix64.
func mix(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// cursor reads a list from its front. It can skip a node without reading it.
type cursor struct {
	src  Source
	kind byte
	// stack holds what is left of the open nodes, the top node first. Below a node of level n are nodes of level n-1.
	stack []openList
	// last is the name of the last entry that was read.
	last string
}

// openList holds the items of a node that are not read yet, and the node's level.
type openList struct {
	items []item
	level uint8
}

// newCursor returns a cursor at the front of a list. size is the length of the file for a list of chunks.
func newCursor(src Source, kind byte, r ref, size int64) *cursor {
	c := &cursor{src: src, kind: kind}
	if r.kind == refList {
		c.stack = []openList{{items: []item{{id: r.id, size: size}}, level: r.level + 1}}
	}
	return c
}

// node returns the node that the cursor has reached but not read; ok is false if an entry, a chunk or nothing comes
// next.
func (c *cursor) node() (id pack.ID, level uint8, ok bool) {
	c.leave()
	if len(c.stack) == 0 {
		return id, 0, false
	}
	top := &c.stack[len(c.stack)-1]
	return top.items[0].id, top.level, top.level > 0
}

// leave drops the nodes that were read to their end.
func (c *cursor) leave() {
	for len(c.stack) > 0 && len(c.stack[len(c.stack)-1].items) == 0 {
		c.stack = c.stack[:len(c.stack)-1]
	}
}

// skip moves the cursor over the node that it has reached.
func (c *cursor) skip() {
	top := &c.stack[len(c.stack)-1]
	c.last = top.items[0].entry.Name
	top.items = top.items[1:]
}

// open reads the node that the cursor has reached, so that its items come next.
func (c *cursor) open(ctx context.Context) error {
	top := &c.stack[len(c.stack)-1]
	it := top.items[0]
	b, err := c.src.Get(ctx, it.id)
	if err != nil {
		return err
	}
	items, err := decodeList(b, c.kind, top.level-1)
	if err != nil {
		return err
	}
	if c.kind == entriesNode {
		end := items[len(items)-1].entry.Name
		if items[0].entry.Name <= c.last || it.entry.Name != "" && it.entry.Name != end {
			return refuse("its names are not those that the node above it has")
		}
	} else if err := sum(items, it.size); err != nil {
		return err
	}
	top.items = top.items[1:]
	c.stack = append(c.stack, openList{items: items, level: top.level - 1})
	return nil
}

// sum returns an error unless the items together hold size bytes of file content.
func sum(items []item, size int64) error {
	for _, it := range items {
		if size -= it.size; size < 0 {
			break
		}
	}
	if size != 0 {
		return refuse("its chunks do not have the length of the file")
	}
	return nil
}

// next returns the next item of level 0, an entry or a chunk; false at the end of the list.
func (c *cursor) next(ctx context.Context) (item, bool, error) {
	for {
		c.leave()
		if len(c.stack) == 0 {
			return item{}, false, nil
		}
		top := &c.stack[len(c.stack)-1]
		if top.level == 0 {
			it := top.items[0]
			top.items = top.items[1:]
			c.last = it.entry.Name
			return it, true, nil
		}
		if err := c.open(ctx); err != nil {
			return item{}, false, err
		}
	}
}
