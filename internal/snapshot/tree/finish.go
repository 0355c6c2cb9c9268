package tree

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/statcache"
)

// Finish stores the nodes of changed directories, and returns the result. It does not read the tree.
func (s *Scan) Finish(ctx context.Context) (Result, error) {
	r := Result{
		Root: s.c.Last, Same: true,
		Files: s.seen.files, Dirs: s.seen.dirs, Links: s.seen.links, Bytes: s.seen.bytes,
		Hashed: s.hashed, HashedBytes: s.content.hashed,
		Skipped: s.seen.skipped, SkippedCount: s.seen.skips,
		Fuzzy: s.fuzzy.list, FuzzyCount: s.fuzzy.n, Unchecked: s.unchecked, Mismatches: s.mismatches,
	}
	if s.live.Len()+s.still.Len() == 0 && s.cache.Exists() {
		r.save = func() error { return s.cache.Append(statcache.NewRun(s.c.State), s.head(s.c.Last)) }
		return r, nil
	}
	f := &finisher{
		sink: s.c.Sink, changes: statcache.NewRun(s.c.State),
		whole: s.cache.Full(s.live.Size() + s.still.Size()),
		found: statcache.Merge(s.still.Records(), s.live.Records()), known: statcache.Merge(s.cache.Runs()...),
	}
	defer s.live.Close()
	defer s.still.Close()
	if err := f.run(ctx); err != nil {
		f.changes.Close()
		return Result{}, failed(err)
	}
	r.Root, r.Same, r.Changed = f.root, f.root == s.c.Last, f.changed
	h := s.head(f.root)
	r.save = func() error {
		defer f.changes.Close()
		if f.whole {
			return s.cache.Replace(f.changes, h)
		}
		return s.cache.Append(f.changes, h)
	}
	return r, nil
}

// finisher makes the nodes of a tree, and the new records of the stat cache, from the old records of the cache (known)
// and those that the passes found.
type finisher struct {
	sink         Sink
	found, known *statcache.Merged
	// changes are the records that the cache gets: all records if whole is true, else only those that changed.
	changes *statcache.Run
	whole   bool
	changed int
	root    pack.ID
	stack   []frame
	key     []byte
	buf     []byte
}

// frame is a directory whose entries are being collected for its list.
type frame struct {
	// key is the length of the directory's key.
	key int
	// body is the directory's encoded entry; entries are those in it.
	body    []byte
	entries entries
	// dirty says that an entry of the directory changed. was is the list of its entries as it was stored last, if had is
	// true.
	dirty, had bool
	was        ref
}

// entries are encoded entries of a directory, in pieces of memory: a directory may have very many.
type entries struct{ pieces [][]byte }

const piece = 64 << 10

// add adds an entry: its encoded name, its body and, for a directory, its encoded content.
func (e *entries) add(name, body, content []byte) {
	need := len(name) + len(body) + len(content) + binary.MaxVarintLen64
	last := len(e.pieces) - 1
	if last < 0 || cap(e.pieces[last])-len(e.pieces[last]) < need {
		size := need
		if last >= 0 {
			size = max(need, min(piece, 4*cap(e.pieces[last])))
		}
		e.pieces, last = append(e.pieces, make([]byte, 0, max(size, 512))), last+1
	}
	b := binary.AppendUvarint(e.pieces[last], uint64(len(name)+len(body)+len(content)))
	b = append(b, name...)
	b = append(b, body...)
	e.pieces[last] = append(b, content...)
}

func (f *finisher) run(ctx context.Context) error {
	if err := f.found.Next(); err != nil {
		return err
	}
	if err := f.known.There(); err != nil {
		return err
	}
	for n := 0; f.found.Rec != nil || f.known.Rec != nil; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := f.one(); err != nil {
			return err
		}
	}
	return f.closeTo(nil)
}

// one handles the next key of the old records (known) and of the found ones, whichever comes first.
func (f *finisher) one() error {
	c := -1
	switch {
	case f.found.Rec == nil:
		c = 1
	case f.known.Rec != nil:
		c = statcache.Compare(f.found.Rec, f.known.Rec)
	}
	var err error
	switch {
	case c > 0:
		err = f.entry(f.known.Rec, f.known.Rec)
	case c < 0:
		err = f.entry(f.found.Rec, nil)
	default:
		err = f.entry(f.found.Rec, f.known.Rec)
	}
	if err == nil && c <= 0 {
		err = f.found.Next()
	}
	if err == nil && c >= 0 {
		err = f.known.There()
	}
	return err
}

// entry handles one record; old is the record of the same key in the cache, or nil.
func (f *finisher) entry(rec, old *statcache.Record) error {
	if rec.Is(statcache.End) {
		return f.end(rec)
	}
	if err := f.closeTo(rec.Key); err != nil {
		return err
	}
	// If Still ended early, it did not find that the entries of a directory are gone which became a file: here they count
	// as gone.
	if n := len(f.stack); n > 0 && f.stack[n-1].key != bytes.LastIndexByte(rec.Key, 0) {
		rec = &statcache.Record{Key: rec.Key, Flags: statcache.Gone}
	}
	if rec.Is(statcache.Gone) && old == nil {
		return nil
	}
	if old == nil || rec.Is(statcache.Gone) || !bytes.Equal(rec.Body, old.Body) {
		f.changed++
		if len(f.stack) > 0 {
			f.stack[len(f.stack)-1].dirty = true
		}
	}
	if f.whole && !rec.Is(statcache.Gone) || !f.whole && rec != old {
		if err := f.changes.Add(rec); err != nil {
			return err
		}
	}
	switch {
	case rec.Is(statcache.Gone):
	case Type(rec.Body[0]&typeBits) == Dir:
		f.key = append(f.key[:0], rec.Key...)
		f.stack = append(f.stack, frame{key: len(rec.Key), body: bytes.Clone(rec.Body)})
	case len(f.stack) == 0:
		return statcache.ErrDamaged
	default:
		f.stack[len(f.stack)-1].entries.add(f.name(rec.Key), rec.Body, nil)
	}
	return nil
}

// name returns the encoded name at the end of a key.
func (f *finisher) name(key []byte) []byte {
	name := key[bytes.LastIndexByte(key, 0)+1:]
	f.buf = append(binary.AppendUvarint(f.buf[:0], uint64(len(name))), name...)
	return f.buf
}

// end handles the end record of a directory, which may not exist any more.
func (f *finisher) end(rec *statcache.Record) error {
	key := rec.Key[:len(rec.Key)-1]
	if err := f.closeTo(rec.Key); err != nil {
		return err
	}
	if n := len(f.stack); n > 0 && f.stack[n-1].key == len(key) && bytes.Equal(f.key[:len(key)], key) {
		d := &decoder{b: rec.Body}
		top := &f.stack[n-1]
		if top.was, top.had = d.ref(), true; d.err != nil {
			return d.err
		}
		return f.close()
	}
	if f.whole {
		return nil
	}
	return f.changes.Add(&statcache.Record{Key: rec.Key, Flags: statcache.End | statcache.Gone})
}

// closeTo closes the open directories that do not hold the entry with the key; for nil, all.
func (f *finisher) closeTo(key []byte) error {
	for n := len(f.stack); n > 0; n = len(f.stack) {
		at := f.stack[n-1].key
		if key != nil && len(key) > at && key[at] == 0 && bytes.Equal(f.key[:at], key[:at]) {
			return nil
		}
		if err := f.close(); err != nil {
			return err
		}
	}
	return nil
}

// close stores the list of the innermost open directory, and adds the directory to the one above.
func (f *finisher) close() error {
	n := len(f.stack) - 1
	top := f.stack[n]
	content, key := top.was, f.key[:top.key]
	if !top.had || top.dirty {
		var err error
		if content, err = f.list(top.entries); err != nil {
			return err
		}
	}
	f.stack = f.stack[:n]
	changed := !top.had || content != top.was
	encoded := appendRef(nil, content)
	if f.whole || changed {
		if err := f.changes.Add(&statcache.Record{Key: append(bytes.Clone(key), 0), Flags: statcache.End, Body: encoded}); err != nil {
			return err
		}
	}
	if n == 0 {
		id, err := f.sink.Put(pack.Node, appendRoot(nil, top.body, content))
		f.root = id
		return err
	}
	above := &f.stack[n-1]
	above.dirty = above.dirty || changed
	above.entries.add(f.name(key), top.body, encoded)
	f.key = f.key[:above.key]
	return nil
}

// list stores the list of entries of a directory.
func (f *finisher) list(e entries) (ref, error) {
	l := &lister{sink: f.sink, kind: entriesNode}
	for _, b := range e.pieces {
		for len(b) > 0 {
			size, n := binary.Uvarint(b)
			one := b[n : n+int(size)]
			b = b[n+int(size):]
			length, n := binary.Uvarint(one)
			if err := l.addEntry(string(one[n:n+int(length)]), one); err != nil {
				return ref{}, err
			}
		}
	}
	return l.done()
}
