package pack

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-run/holdfast"
)

// blockMemory is the maximum of bytes of decompressed blocks that a Reader keeps.
const blockMemory = 8 << 20

// Reader reads blobs from a set of packs. It keeps the most recently used blocks: a caller that gets
// the blobs of a pack in their order reads each block from disk once. It needs no Close. Safe for
// concurrent use.
type Reader struct {
	store *Store
	packs *finder

	// mu is held while a block is read, so that two goroutines do not read the same block.
	mu     sync.Mutex
	blocks cache[place, []byte]
}

// place identifies a block in a pack.
type place struct {
	pack  PackID
	block uint32
}

// In returns a reader of the packs in a set.
func (s *Store) In(set Set) *Reader {
	return &Reader{store: s, packs: s.finder(set), blocks: cache[place, []byte]{most: blockMemory}}
}

// Get returns a blob that matches its id. The caller must not change the bytes, because other blobs
// share their memory. If one pack's copy of the blob is damaged, Get returns the copy of another
// pack. Its error is not_found if no pack of the set has the blob; otherwise the error names the
// blob and the first pack that could not be read.
func (r *Reader) Get(ctx context.Context, id ID) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var data []byte
	err := r.packs.find(id, func(x *index, e entry) (err error) {
		data, err = r.read(x, e)
		return err
	})
	switch {
	case err == nil:
		return data, nil
	case errors.Is(err, errAbsent):
		return nil, holdfast.Errorf(holdfast.KindNotFound, "blob "+id.String(), "none of the %d packs has the blob", len(r.packs.set))
	}
	return nil, holdfast.Errorf(holdfast.KindOf(err), "blob "+id.String(), "%w", err)
}

func (r *Reader) read(x *index, e entry) ([]byte, error) {
	raw, err := r.block(x, e)
	if err != nil {
		return nil, err
	}
	return r.store.keys.checked(x, x.block(int(e.block)).kind, e, raw)
}

// block returns the decompressed block of an entry.
func (r *Reader) block(x *index, e entry) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := place{x.id, e.block}
	if raw, ok := r.blocks.get(at); ok {
		return raw, nil
	}
	f, err := r.store.file(x.id)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_, data, err := r.store.keys.readBlock(x, f, int(e.block))
	if err != nil {
		return nil, err
	}
	raw, err := r.store.unpack(x, int(e.block), data)
	if err != nil {
		return nil, err
	}
	r.blocks.put(at, raw, len(raw))
	return raw, nil
}
