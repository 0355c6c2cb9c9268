package pack

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/holdfast-run/holdfast"
)

// blockMemory is how many bytes of decompressed blocks a Reader keeps at most.
const blockMemory = 8 << 20

// Reader reads blobs from a set of packs. It keeps the most recently used blocks: a caller that gets
// the blobs of a pack in their order reads each block from disk once. It needs no Close. Safe for
// concurrent use.
type Reader struct {
	store *Store
	packs *finder

	// mu is held while a block is read, so that two goroutines do not read the same block twice.
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

// Get returns the blob with an id, after it has checked that the bytes match the id. The caller must not change the
// bytes, because other blobs share their memory. If one pack's copy of the blob is damaged, Get returns that of another
// pack. Its error is not_found if no pack of the set has the blob, or if the first pack that could not be read is
// missing; otherwise it names the blob and that first pack. If ctx has ended, it is the error of ctx.
func (r *Reader) Get(ctx context.Context, id ID) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var data []byte
	err := r.packs.find(id, func(x *index, e entry) (err error) {
		data, err = r.read(x, e)
		return err
	})
	if err != nil {
		return nil, r.missing(id, err)
	}
	return data, nil
}

// Has returns nil if a pack of the set lists the blob and the pack's file exists. It does not read the blob. Its errors
// are those of Get.
func (r *Reader) Has(id ID) error {
	return r.missing(id, r.packs.find(id, func(x *index, _ entry) error {
		if _, err := os.Lstat(r.store.path(x.id)); err != nil {
			return unread(x.id, "file", err)
		}
		return nil
	}))
}

// missing returns the error of Get and Has for a blob, from the error of finder.find.
func (r *Reader) missing(id ID, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errAbsent):
		return holdfast.Errorf(holdfast.KindNotFound, "blob "+id.String(), "none of the %d packs has the blob", len(r.packs.set))
	}
	return holdfast.Errorf(holdfast.KindOf(err), "blob "+id.String(), "%w", err)
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
