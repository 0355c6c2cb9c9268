package tree

import (
	"cmp"
	"context"
	"io"
	"iter"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

func top(ctx context.Context, src Source, root pack.ID) (Entry, error) {
	b, err := src.Get(ctx, root)
	if err != nil {
		return Entry{}, err
	}
	return decodeRoot(b)
}

// LookupOp is the Op of the errors of Lookup that are about the path. An error of reading a blob has another Op.
const LookupOp = "snapshot.lookup"

// Lookup returns the entry at a clean relative path ("." for the top); not_found if there is none. It follows no symlink.
func Lookup(ctx context.Context, src Source, root pack.ID, path string) (Entry, error) {
	e, err := top(ctx, src, root)
	if err != nil || path == "." {
		return e, err
	}
	if !validPath(path) {
		return Entry{}, holdfast.Errorf(holdfast.KindInvalid, LookupOp, "the path %s is not a clean relative path", holdfast.Quote(path))
	}
	for name := range strings.SplitSeq(path, "/") {
		found := false
		if e.Type == Dir {
			if e, found, err = find(ctx, src, e.content, name); err != nil {
				return Entry{}, err
			}
		}
		if !found {
			return Entry{}, holdfast.Errorf(holdfast.KindNotFound, LookupOp, "the snapshot has no file or directory %s", holdfast.Quote(path))
		}
	}
	return e, nil
}

func find(ctx context.Context, src Source, r ref, name string) (Entry, bool, error) {
	if r.kind == refNone {
		return Entry{}, false, nil
	}
	for id, level := r.id, r.level; ; level-- {
		b, err := src.Get(ctx, id)
		if err != nil {
			return Entry{}, false, err
		}
		items, err := decodeList(b, entriesNode, level)
		if err != nil {
			return Entry{}, false, err
		}
		at := 0
		for at < len(items) && items[at].entry.Name < name {
			at++
		}
		switch {
		case at == len(items):
			return Entry{}, false, nil
		case level == 0:
			return items[at].entry, items[at].entry.Name == name, nil
		}
		id = items[at].id
	}
}

// List returns the entries of a directory of a stored tree, sorted by name. Errors are those of Lookup, and conflict if
// the path is not a directory. An error ends the sequence.
func List(ctx context.Context, src Source, root pack.ID, path string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		e, err := Lookup(ctx, src, root, path)
		if err == nil && e.Type != Dir {
			err = holdfast.Errorf(holdfast.KindConflict, "snapshot.list", "the path %s is not a directory in the snapshot", holdfast.Quote(path))
		}
		if err != nil {
			yield(Entry{}, err)
			return
		}
		c := newCursor(src, entriesNode, e.content, 0)
		for {
			it, ok, err := c.next(ctx)
			if !ok && err == nil || !yield(it.entry, err) || err != nil {
				return
			}
		}
	}
}

// Read returns a file of a stored tree and a reader of its content. Errors are those of Lookup, and conflict if the
// path is not a file. The reader returns an error if ctx ends.
func Read(ctx context.Context, src Source, root pack.ID, path string) (Entry, io.Reader, error) {
	e, err := Lookup(ctx, src, root, path)
	if err == nil && e.Type != File {
		err = holdfast.Errorf(holdfast.KindConflict, "snapshot.read", "the path %s is not a file in the snapshot", holdfast.Quote(path))
	}
	if err != nil {
		return Entry{}, nil, err
	}
	return e, &reader{ctx: ctx, pieces: newPieces(src, e)}, nil
}

// pieces returns the content of a file piece by piece.
type pieces struct {
	src   Source
	whole *pack.ID
	size  int64
	list  *cursor
}

func newPieces(src Source, e Entry) *pieces {
	p := &pieces{src: src, size: e.Size}
	switch e.content.kind {
	case refWhole:
		p.whole = &e.content.id
	case refList:
		p.list = newCursor(src, chunksNode, e.content, e.Size)
	case refNone:
	}
	return p
}

// next returns the next piece of the content: data, or for a hole nil data and its length. size is 0 at the end.
func (p *pieces) next(ctx context.Context) (data []byte, size int64, err error) {
	var it item
	switch {
	case p.whole != nil:
		it = item{id: *p.whole, size: p.size}
		p.whole = nil
	case p.list != nil:
		var ok bool
		if it, ok, err = p.list.next(ctx); err != nil || !ok {
			return nil, 0, err
		}
	default:
		return nil, 0, nil
	}
	if it.hole {
		return nil, it.size, nil
	}
	if data, err = p.src.Get(ctx, it.id); err == nil && int64(len(data)) != it.size {
		err = refuse("a chunk has %d bytes instead of %d", len(data), it.size)
	}
	return data, it.size, err
}

// reader reads the content of a file as a stream.
type reader struct {
	ctx    context.Context
	pieces *pieces
	data   []byte
	hole   int64
}

func (r *reader) Read(p []byte) (int, error) {
	for len(p) > 0 && len(r.data) == 0 && r.hole == 0 {
		if err := r.ctx.Err(); err != nil {
			return 0, err
		}
		data, size, err := r.pieces.next(r.ctx)
		switch {
		case err != nil:
			return 0, err
		case size == 0:
			return 0, io.EOF
		case data == nil:
			r.hole = size
		}
		r.data = data
	}
	if r.hole > 0 {
		n := int(min(r.hole, int64(len(p))))
		clear(p[:n])
		r.hole -= int64(n)
		return n, nil
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}

// Blobs calls visit for each blob of a stored tree, a node before the blobs that it names, and a blob once for each
// time that it is named. If visit returns false for a node, Blobs does not visit what that node names.
func Blobs(ctx context.Context, src Source, root pack.ID, visit func(kind pack.Kind, id pack.ID) bool) error {
	if !visit(pack.Node, root) {
		return nil
	}
	e, err := top(ctx, src, root)
	if err != nil {
		return err
	}
	return blobs(ctx, src, e, 0, visit)
}

// Present returns the first error that has returns for a blob of a file's content. It reads the nodes of a large file.
func Present(ctx context.Context, src Source, file Entry, has func(pack.ID) error) (err error) {
	rerr := blobs(ctx, src, file, 0, func(_ pack.Kind, id pack.ID) bool {
		if err == nil {
			err = has(id)
		}
		return err == nil
	})
	return cmp.Or(err, rerr)
}

func blobs(ctx context.Context, src Source, e Entry, depth int, visit func(kind pack.Kind, id pack.ID) bool) error {
	kind := entriesNode
	switch {
	case depth > MaxDepth:
		return errDeep
	case e.content.kind == refWhole:
		visit(pack.Data, e.content.id)
		return nil
	case e.Type == File:
		kind = chunksNode
	}
	c := newCursor(src, kind, e.content, e.Size)
	for {
		for id, _, ok := c.node(); ok; id, _, ok = c.node() {
			if !visit(pack.Node, id) {
				c.skip()
			} else if err := c.open(ctx); err != nil {
				return err
			}
		}
		it, ok, err := c.next(ctx)
		switch {
		case err != nil || !ok:
			return err
		case kind == entriesNode:
			if err := blobs(ctx, src, it.entry, depth+1, visit); err != nil {
				return err
			}
		case !it.hole:
			visit(pack.Data, it.id)
		}
	}
}
