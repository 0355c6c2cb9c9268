package tree

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"

	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// Sizes of chunks, in bytes. They and gear may change without a change of the format: then fewer chunks of changed
// files equal stored ones.
const (
	leastChunk = 64 << 10
	usualChunk = 256 << 10
	// A chunk ends before usualChunk where the top 20 bits of the rolling hash are 0, after it where 16 are.
	strict = 1 << (64 - 20)
	loose  = 1 << (64 - 16)
	// holeBlock is the unit of holes: an aligned block of this length that has only zeros is stored as a hole.
	holeBlock = 64 << 10
)

// gear maps a byte to a random-looking number: the output of SplitMix64 for the byte times the increment of SplitMix64.
var gear = func() (g [256]uint64) {
	for i := range g {
		g[i] = mix(uint64(i) * 0x9e3779b97f4a7c15)
	}
	return g
}()

// cut returns the length of the first chunk of b by FastCDC with normalized chunking. Where a chunk ends depends on the
// 64 bytes before the end, so behind a change the chunks are the same as before. b holds maxChunk bytes, or ends with
// its file or before a hole.
func cut(b []byte) int {
	if len(b) <= leastChunk {
		return len(b)
	}
	b = b[:min(len(b), maxChunk)]
	var h uint64
	usual := min(len(b), usualChunk)
	for i, c := range b[leastChunk:usual] {
		if h = h<<1 + gear[c]; h < strict {
			return leastChunk + i + 1
		}
	}
	for i, c := range b[usual:] {
		if h = h<<1 + gear[c]; h < loose {
			return usual + i + 1
		}
	}
	return len(b)
}

func zero(b []byte) bool {
	for len(b) >= 8 {
		if binary.NativeEndian.Uint64(b) != 0 {
			return false
		}
		if len(b) >= 16 {
			return bytes.Equal(b[:len(b)-8], b[8:])
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// file is what the content of a file is read from.
type file interface {
	io.ReaderAt
	NextData(off int64) (int64, error)
	NextHole(off int64) (int64, error)
}

// content stores the content of files, one after the other, with the same buffers.
type content struct {
	sink Sink
	// small is a buffer for a whole small file, large one for the part of a large file that is being cut into chunks.
	small, large []byte
	// hashed counts the bytes that were read.
	hashed int64
}

const largeBuffer = 4 << 20

// store stores the content of a file, a small file whole, a large one in chunks, and returns the length that it stored,
// with holes. size is the length by the file's stat; sparse says that the file may have holes; last are its chunks as
// they were stored last, or nil. If the file becomes shorter meanwhile, what was read is stored.
func (c *content) store(ctx context.Context, f file, size int64, sparse bool, last *lastChunks) (ref, int64, error) {
	if size == 0 {
		return ref{}, 0, nil
	}
	if size > maxWhole {
		r, n, err := c.storeChunks(ctx, f, size, sparse, last)
		if err != nil || n > maxWhole {
			return r, n, err
		}
		size = n
	}
	if int64(len(c.small)) < size {
		c.small = make([]byte, min(2*size, maxWhole))
	}
	n, err := f.ReadAt(c.small[:size], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return ref{}, 0, err
	}
	if n == 0 {
		return ref{}, 0, nil
	}
	c.hashed += int64(n)
	id, err := c.put(c.small[:n])
	return ref{kind: refWhole, id: id}, int64(n), err
}

// errSink marks an error of the sink, which ends a scan. Other errors concern one file.
type errSink struct{ error }

func (e errSink) Unwrap() error { return e.error }

func (c *content) put(b []byte) (pack.ID, error) {
	id, err := c.sink.Put(pack.Data, b)
	if err != nil {
		err = errSink{err}
	}
	return id, err
}

// chunker cuts one file into chunks.
type chunker struct {
	*content
	ctx    context.Context
	f      file
	size   int64
	sparse bool
	last   *lastChunks
	list   lister
	// large[start:end] is data to be cut, large[end:filled] is data read after it; off is the offset of end in the file.
	start, end, filled int
	off                int64
	// hole is the length of the hole before off.
	hole int64
}

func (c *content) storeChunks(ctx context.Context, f file, size int64, sparse bool, last *lastChunks) (ref, int64, error) {
	if c.large == nil {
		c.large = make([]byte, largeBuffer)
	}
	k := &chunker{content: c, ctx: ctx, f: f, size: size, sparse: sparse, last: last, list: lister{sink: c.sink, kind: chunksNode}}
	for k.off < k.size {
		if err := k.block(); err != nil {
			return ref{}, 0, err
		}
	}
	if err := errors.Join(k.flush(), k.endHole()); err != nil {
		return ref{}, 0, err
	}
	r, err := k.list.done()
	if err != nil {
		err = errSink{err}
	}
	return r, k.off, err
}

// block takes the next block of the file. A block of zeros becomes a hole: the data before it is cut into chunks and
// stored.
func (k *chunker) block() error {
	if k.end == k.filled {
		if k.sparse && k.start == k.end {
			if skipped, err := k.skip(); skipped || err != nil {
				return err
			}
		}
		if err := k.fill(); err != nil || k.end == k.filled {
			return err
		}
	}
	n := min(holeBlock, k.filled-k.end)
	b := k.large[k.end : k.end+n]
	k.end += n
	k.off += int64(n)
	if b[0] == 0 && zero(b) {
		k.end -= n
		k.off -= int64(n)
		if err := k.flush(); err != nil {
			return err
		}
		k.end += n
		k.off += int64(n)
		k.start = k.end
		k.hole += int64(n)
		return nil
	}
	if err := k.endHole(); err != nil {
		return err
	}
	if k.end-k.start >= maxChunk {
		return k.cut()
	}
	return nil
}

// skip moves off over a hole without reading the hole.
func (k *chunker) skip() (bool, error) {
	at, err := k.f.NextData(k.off)
	if errors.Is(err, io.EOF) {
		at, err = k.size, nil
	}
	if at < k.size {
		at &^= holeBlock - 1
	}
	at = min(at, k.size)
	if err != nil || at <= k.off {
		return false, err
	}
	k.hole += at - k.off
	k.off = at
	return true, nil
}

// fill reads more of the file into large. off and the length read are multiples of holeBlock, except at the file's end.
func (k *chunker) fill() error {
	if err := k.ctx.Err(); err != nil {
		return err
	}
	if len(k.large)-k.filled < holeBlock {
		k.filled = copy(k.large, k.large[k.start:k.filled])
		k.start, k.end = 0, k.filled
	}
	room := int64(len(k.large)-k.filled) &^ (holeBlock - 1)
	if k.sparse {
		// Read up to the next hole, and one block of the hole: skip moves over the rest, which may be huge.
		hole, err := k.f.NextHole(k.off)
		if err != nil {
			return err
		}
		room = min(room, max(holeBlock, (hole-k.off+holeBlock-1)&^(holeBlock-1)))
	}
	n, err := k.f.ReadAt(k.large[k.filled:k.filled+int(min(room, k.size-k.off))], k.off)
	if errors.Is(err, io.EOF) {
		k.size, err = k.off+int64(n), nil
	}
	k.filled += n
	k.hashed += int64(n)
	return err
}

// cut stores the first chunk of the data large[start:end].
func (k *chunker) cut() error {
	b := k.large[k.start:k.end]
	id, n := k.last.same(k.ctx, k.sink, b, k.off-int64(len(b)))
	if n == 0 {
		n = cut(b)
		var err error
		if id, err = k.put(b[:n]); err != nil {
			return err
		}
	}
	k.start += n
	if err := k.list.addChunk(id, int64(n)); err != nil {
		return errSink{err}
	}
	return nil
}

// lastChunks are the chunks of a file as they were stored last. Where the file still has the same bytes at the same
// offset, its chunk is the same. To find that out, hashing the bytes is faster than cutting them.
type lastChunks struct {
	list *cursor
	// now is the stored chunk at the offset off of the file, then is the chunk after it.
	now, then item
	off       int64
}

// same returns the id and the length of the chunk that was stored at off, if b begins with the same bytes and if the
// place where the chunk ends depends on these bytes alone; else length 0. The sink has this chunk.
func (l *lastChunks) same(ctx context.Context, sink Sink, b []byte, off int64) (id pack.ID, n int) {
	if l == nil || l.list == nil {
		return id, 0
	}
	for l.off < off || l.then.size == 0 {
		l.off += l.now.size
		l.now = l.then
		it, ok, err := l.list.next(ctx)
		if err != nil || !ok {
			// If the list cannot be read, the chunks are cut as those of a new file.
			l.list = nil
			return id, 0
		}
		l.then = it
	}
	n = int(l.now.size)
	if l.off != off || l.now.hole || l.then.hole || n == 0 || n > len(b) || sink.ID(pack.Data, b[:n]) != l.now.id {
		return id, 0
	}
	return l.now.id, n
}

func (k *chunker) flush() error {
	for k.start < k.end {
		if err := k.cut(); err != nil {
			return err
		}
	}
	return nil
}

func (k *chunker) endHole() error {
	if k.hole == 0 {
		return nil
	}
	n := k.hole
	k.hole = 0
	if err := k.list.addHole(n); err != nil {
		return errSink{err}
	}
	return nil
}

var _ file = rooted.Handle{}
