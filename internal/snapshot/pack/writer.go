package pack

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/holdfast-run/holdfast"
)

// leastPacked is the size, in bytes, from which a block of a pack is compressed. Compressing a smaller block would not
// make the file occupy less of the disk.
const leastPacked = 1 << 10

// Writer gathers the blobs of one commit. Whenever blobs fill a block, it compresses the block; the blocks of a small
// commit stay in memory, those of a larger one are written to a temporary file. Nobody can read the blobs before Commit
// returns. The caller must call Commit or Abort at the end. Not safe for concurrent use.
type Writer struct {
	store *Store
	known *finder
	// seen has the blobs that were put into the unfinished pack or are held in memory. Those of finished packs are in
	// done.
	seen   map[ID]struct{}
	shared [2]gathering
	// held has the commit as long as it is small enough for a spare file.
	held held
	now  *builder // the unfinished pack; nil if there is none
	done []built
	// packed is the buffer for compressed blocks.
	packed []byte
	err    error
}

// gathering collects small blobs of one kind until they fill a block.
type gathering struct {
	raw   []byte
	blobs []entry
}

// built is a complete pack that still has its temporary name or, in a spare file, its mark.
type built struct {
	*builder
	index *index
}

var errEnded = holdfast.Errorf(holdfast.KindInternal, "write packs", "the writer of packs has ended already")

// Writer returns a Writer that does not write the blobs of known packs again. A known pack that cannot be read counts
// as empty.
func (s *Store) Writer(known Set) *Writer {
	return &Writer{store: s, known: s.finder(known), seen: map[ID]struct{}{}, err: s.writable()}
}

// Put returns the id of a blob, and adds the blob to the commit unless the commit or a known pack has it already. It
// does not keep data. After a failed write each later Put and Commit fails.
func (w *Writer) Put(kind Kind, data []byte) (ID, error) {
	switch {
	case w.err != nil:
		return ID{}, w.err
	case kind != Data && kind != Node:
		return ID{}, holdfast.Errorf(holdfast.KindInvalid, "write packs", "%d is not a kind of blob", kind)
	case len(data) > MaxBlob:
		return ID{}, tooLarge("blob", len(data), MaxBlob)
	}
	id := w.store.keys.blob(kind, data)
	if !w.has(id) {
		w.err = w.add(kind, id, data)
	}
	return id, w.err
}

// ID returns the id that Put gives a blob, and stores nothing.
func (w *Writer) ID(kind Kind, data []byte) ID { return w.store.keys.blob(kind, data) }

func tooLarge(what string, bytes, most int) error {
	return holdfast.Errorf(holdfast.KindTooLarge, "write packs",
		"a %s for a pack has %d bytes, more than the limit of %d", what, bytes, most)
}

// has reports whether the commit or a known pack has a blob.
func (w *Writer) has(id ID) bool {
	if _, ok := w.seen[id]; ok {
		return true
	}
	for _, d := range w.done {
		if _, ok := d.index.find(id); ok {
			return true
		}
	}
	return w.known.find(id, func(*index, entry) error { return nil }) == nil
}

func (w *Writer) add(kind Kind, id ID, data []byte) error {
	e := entry{id: id, length: uint32(len(data))}
	w.seen[id] = struct{}{}
	if len(data) > solidBlob {
		return w.compress(kind, data, []entry{e})
	}
	g := &w.shared[kind-1]
	if g.raw == nil {
		g.raw = w.store.buffers.get()
	}
	if len(g.raw)+len(data) > solidBlock || len(g.blobs) == solidBlobs {
		if err := w.flush(kind); err != nil {
			return err
		}
	}
	e.offset = uint32(len(g.raw))
	g.raw, g.blobs = append(g.raw, data...), append(g.blobs, e)
	return nil
}

// flush writes the gathered blobs of a kind as a block.
func (w *Writer) flush(kind Kind) error {
	g := &w.shared[kind-1]
	if len(g.blobs) == 0 {
		return nil
	}
	err := w.compress(kind, g.raw, g.blobs)
	g.raw, g.blobs = g.raw[:0], g.blobs[:0]
	return err
}

// compress writes raw, the bytes of some blobs, as a block: compressed, if it has at least leastPacked bytes and
// becomes shorter.
func (w *Writer) compress(kind Kind, raw []byte, blobs []entry) error {
	if w.packed == nil {
		w.packed = w.store.buffers.get()
	}
	packed, coding := w.packed[:0], byte(codingZstd)
	if len(raw) >= leastPacked {
		var err error
		if packed, err = w.store.codec.compress(packed, raw); err != nil {
			return holdfast.Errorf(holdfast.KindInternal, "write packs", "cannot compress a block of a pack: %w", err)
		}
	}
	if len(packed) == 0 || len(packed) >= len(raw) {
		// Store a copy of raw: encryption overwrites its input, and raw may belong to the caller.
		packed, coding = append(packed[:0], raw...), codingRaw
	}
	w.packed = packed
	return w.write(kind, coding, len(raw), packed, blobs)
}

// write holds a block in memory while the commit may fit into a spare file; else it writes the block to the unfinished
// pack, or to a new one if that is full.
func (w *Writer) write(kind Kind, coding byte, raw int, payload []byte, blobs []entry) error {
	if w.hold(sealSize + len(payload) + blockSize + len(blobs)*blobSize) {
		w.held.blocks = append(w.held.blocks, heldBlock{kind, coding, raw, bytes.Clone(payload), slices.Clone(blobs)})
		return nil
	}
	if err := w.room(len(payload), len(blobs), 0); err != nil {
		return err
	}
	return w.now.add(kind, coding, raw, payload, blobs)
}

// room makes sure that there is an unfinished pack with room for one block or record of this size, and that nothing is
// held in memory. If the present pack has too little room, room finishes it and begins a new one.
func (w *Writer) room(stored, blobs, record int) error {
	if w.held.bytes > 0 {
		b, err := w.store.newBuilder()
		if err == nil {
			err = w.release(b)
		}
		if err != nil {
			return err
		}
	}
	if w.now != nil && !w.now.fits(stored, blobs, record) {
		if err := w.finish(); err != nil {
			return err
		}
	}
	if w.now != nil {
		return nil
	}
	var err error
	w.now, err = w.store.newBuilder()
	return err
}

// finish completes the unfinished pack.
func (w *Writer) finish() error {
	x, err := w.now.finish()
	if err != nil {
		return err
	}
	for _, e := range w.now.blobs {
		delete(w.seen, e.id)
	}
	w.now.blobs, w.now.blocks = nil, nil
	w.done, w.now = append(w.done, built{w.now, x}), nil
	return nil
}

// Commit makes all blobs durable and returns the packs that it wrote; the last one has the record. If no blob is new,
// it writes no pack, unless rec has data and rec.Always is set. After an error, or if the process or the machine dies
// before Commit returns, any of the packs may be on disk; but each of these is complete, and the pack with the record
// is there only if all others are. Nothing refers to them, so the caller may remove them.
func (w *Writer) Commit(ctx context.Context, rec Record) ([]Info, error) {
	if len(rec.Data) > MaxRecord && w.err == nil {
		w.err = tooLarge("record", len(rec.Data), MaxRecord)
	}
	for _, kind := range []Kind{Data, Node} {
		if w.err == nil {
			w.err = w.flush(kind)
		}
	}
	if some := w.held.bytes > 0 || w.now != nil || len(w.done) > 0; w.err == nil && len(rec.Data) > 0 && (some || rec.Always) {
		w.err = w.note(rec.Data)
	}
	return w.publish(ctx)
}

// note adds a record to the commit: in memory if the commit may still fit into a spare file, else to the unfinished
// pack or to a new one.
func (w *Writer) note(record []byte) error {
	if w.hold(recordHead + len(record)) {
		w.held.records = append(w.held.records, record)
		return nil
	}
	if err := w.room(0, 0, len(record)); err != nil {
		return err
	}
	w.now.record(record)
	return nil
}

// publish gives all packs their final names and makes the names durable: first those of the packs
// without a record, then the others. A pack in a spare file is the only one, and only loses its mark.
func (w *Writer) publish(ctx context.Context) ([]Info, error) {
	if w.err == nil && w.held.bytes > 0 {
		w.err = w.place()
	}
	if w.err == nil && w.now != nil {
		w.err = w.finish()
	}
	if w.err == nil {
		w.err = ctx.Err()
	}
	if err := w.err; err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	infos := make([]Info, 0, len(w.done))
	for _, records := range []bool{false, true} {
		some := false
		for _, d := range w.done {
			if d.index.records > 0 != records || w.err != nil {
				continue
			}
			if d.spare > 0 {
				w.err = w.store.disk.Remove(d.temp) // a spare file has its final name already: only remove its mark
			} else {
				some, w.err = true, w.store.disk.Rename(d.temp, w.store.path(d.index.id))
			}
			if w.err == nil {
				infos = append(infos, d.index.info())
			}
		}
		if some && w.err == nil {
			w.err = w.store.disk.SyncDir(w.store.dir)
		}
	}
	if err := w.err; err != nil {
		for _, in := range infos {
			_ = w.store.disk.Remove(w.store.path(in.ID)) // the error does no harm: a pack that stays is complete, and nothing refers to it
		}
		return nil, errors.Join(failed("write packs", err), w.Abort())
	}
	for _, d := range w.done {
		w.store.indexes.put(d.index.id, d.index, d.index.memory())
	}
	w.end()
	return infos, nil
}

// Abort removes all files of the writer. After Commit, and after another Abort, it does nothing.
func (w *Writer) Abort() error {
	var err error
	if w.now != nil {
		err = w.now.drop()
	}
	for _, d := range w.done {
		err = errors.Join(err, d.drop())
	}
	w.end()
	return failed("write packs", err)
}

// end gives the buffers back for other commits, and makes every later call fail.
func (w *Writer) end() {
	for _, b := range [][]byte{w.shared[0].raw, w.shared[1].raw, w.packed} {
		if b != nil {
			w.store.buffers.put(b)
		}
	}
	*w = Writer{store: w.store, known: w.known, err: errEnded}
}
