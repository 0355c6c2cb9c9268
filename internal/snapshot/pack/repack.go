package pack

import (
	"context"
	"errors"
)

// Repack copies the live blobs and records of packs to new packs, and returns when these are durable. The old packs
// stay: the caller removes them when nothing refers to them. If a pack is missing or damaged, Repack leaves no new
// pack, and its error names that pack.
func (s *Store) Repack(ctx context.Context, packs Set, live Live) ([]Info, error) {
	w := s.Writer(nil)
	var records [][]byte
	for _, id := range packs {
		found, err := w.take(ctx, id, live.Blob)
		if err != nil {
			return nil, errors.Join(err, w.Abort())
		}
		for _, r := range found {
			if live.Record == nil || live.Record(r) {
				records = append(records, r)
			}
		}
	}
	for _, kind := range []Kind{Data, Node} {
		if w.err == nil {
			w.err = w.flush(kind)
		}
	}
	for _, r := range records {
		if w.err == nil {
			w.err = w.note(r)
		}
	}
	return w.publish(ctx)
}

// take adds the live blobs of another pack to the commit, and returns that pack's records.
func (w *Writer) take(ctx context.Context, id PackID, live func(ID) bool) ([][]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	x, records, err := w.store.load(id)
	if err != nil {
		return nil, err
	}
	err = w.store.blocks(ctx, x, func(n int, b block, data []byte, blobs []entry) error {
		var wanted []entry
		for _, e := range blobs {
			if live(e.id) && !w.has(e.id) {
				wanted = append(wanted, e)
			}
		}
		if len(wanted) == 0 {
			return nil
		}
		if len(wanted) == len(blobs) && b.raw > solidBlock/2 {
			return w.copy(b, data, blobs)
		}
		raw, err := w.store.unpack(x, n, data)
		if err != nil {
			return err
		}
		for _, e := range wanted {
			blob, err := w.store.keys.checked(x, b.kind, e, raw)
			if err == nil {
				err = w.add(b.kind, e.id, blob)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return records, err
}

// copy adds a block of another pack to the commit as it is, without decompressing it.
func (w *Writer) copy(b block, data []byte, blobs []entry) error {
	for _, e := range blobs {
		w.seen[e.id] = struct{}{}
	}
	return w.write(b.kind, b.coding, int(b.raw), data, blobs)
}
