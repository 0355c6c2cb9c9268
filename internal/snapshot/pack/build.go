package pack

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/holdfast-run/holdfast"
)

// builder writes one pack: to a temporary file block by block, or to a spare file as a whole.
type builder struct {
	store *Store
	head  header
	seal  sealer
	// temp is the path of the temporary file; for a spare file it is the path of its mark, its second name.
	temp string
	file DiskFile // nil for a spare file, and after finish or drop
	// spare is the size of the spare file that the pack is written to; 0 if it is written to a temporary file.
	spare int
	// whole holds the bytes of the pack so far, if it is written to a spare file.
	whole []byte
	size  int64

	blocks  []byte
	count   int
	blobs   []entry
	records [][]byte
	// recordBytes is the size of the records in the footer.
	recordBytes int
}

func (s *Store) newBuilder() (*builder, error) {
	salt, err := newSalt(s.rand)
	if err != nil {
		return nil, err
	}
	b := &builder{store: s, head: s.keys.newHeader(salt), size: headerSize}
	b.seal = s.keys.sealer(&b.head)
	b.temp = filepath.Join(s.dir, tempPrefix+hex.EncodeToString(salt)+tempSuffix)
	if b.file, err = s.disk.Create(b.temp); err != nil {
		return nil, failed("write pack", err)
	}
	if _, err := b.file.Write(b.head[:]); err != nil {
		return nil, errors.Join(failed("write pack", err), b.drop())
	}
	return b, nil
}

// newSpareBuilder returns the builder of a pack that is written to a spare file of this size.
func (s *Store) newSpareBuilder(head header, size int) *builder {
	b := &builder{store: s, head: head, size: headerSize, spare: size, temp: s.mark(s.keys.pack(&head))}
	b.seal = s.keys.sealer(&b.head)
	b.whole = append(make([]byte, 0, size), head[:]...)
	return b
}

// write writes the next bytes of the pack.
func (b *builder) write(p []byte) error {
	if b.spare > 0 {
		b.whole = append(b.whole, p...)
		return nil
	}
	_, err := b.file.Write(p)
	return failed("write pack", err)
}

// fits reports whether the pack has room for one more block with so many stored bytes and blobs, and for one more
// record of so many bytes.
func (b *builder) fits(stored, blobs, record int) bool {
	footer := footerHead + (b.count+1)*blockSize + (len(b.blobs)+blobs)*blobSize + b.recordBytes + recordHead + record
	total := b.size + int64(stored+footer+trailerSize+2*b.head.overhead())
	return total <= MaxPack && len(b.blobs)+blobs <= b.store.packBlobs
}

// add writes a block. payload is the block in the given coding, raw its size before compression.
// Encryption overwrites payload and, within its capacity, the bytes behind it.
func (b *builder) add(kind Kind, coding byte, raw int, payload []byte, blobs []entry) error {
	stored := b.seal.close(b.count, payload)
	entry := block{
		offset: uint32(b.size), stored: uint32(len(stored)), raw: uint32(raw),
		kind: kind, coding: coding, hash: b.store.keys.sum(hashBlock, stored),
	}
	if err := b.write(stored); err != nil {
		return err
	}
	for _, e := range blobs {
		e.block = uint32(b.count)
		b.blobs = append(b.blobs, e)
	}
	b.blocks = entry.append(b.blocks)
	b.size += int64(len(stored))
	b.count++
	return nil
}

func (b *builder) record(data []byte) {
	b.records = append(b.records, data)
	b.recordBytes += recordHead + len(data)
}

// finish writes the footer and the trailer, and syncs and closes the file. The file keeps its temporary name, or its
// mark.
func (b *builder) finish() (*index, error) {
	sortEntries(b.blobs)
	bytes := footerHead + len(b.blocks) + len(b.blobs)*blobSize + b.recordBytes + b.head.overhead() + trailerSize
	padding := 0
	if b.spare > 0 {
		padding = b.spare - int(b.size) - bytes
	}
	footer := make([]byte, 0, bytes+padding+sealSize)
	for _, n := range []int{b.count, len(b.blobs), len(b.records), b.recordBytes, padding} {
		footer = order.AppendUint32(footer, uint32(n))
	}
	footer = append(footer, b.blocks...)
	for _, e := range b.blobs {
		footer = e.append(footer)
	}
	for _, r := range b.records {
		footer = append(order.AppendUint32(footer, uint32(len(r))), r...)
	}
	footer = footer[:len(footer)+padding]
	x := &index{id: b.store.keys.pack(&b.head), head: b.head}
	if _, why := x.parse(footer, b.size); why != "" {
		return nil, holdfast.Errorf(holdfast.KindInternal, "write pack", "the footer of the new pack is not valid: %s", why)
	}
	footer = b.seal.close(footerPart, footer)
	sum := b.store.keys.sum(hashFooter, b.head[:], footer)
	length := uint32(len(footer))
	footer = order.AppendUint32(footer, length)
	footer = append(append(footer, sum[:]...), tailMagic...)
	err := b.write(footer)
	if err == nil && b.spare > 0 {
		err = b.fill(x.id)
	}
	if err == nil {
		err = b.file.Sync()
	}
	if err == nil {
		err, b.file = b.file.Close(), nil
	}
	x.size = b.size + int64(len(footer))
	return x, failed("write pack", err)
}

// fill writes the whole pack to its spare file.
func (b *builder) fill(id PackID) error {
	f, err := b.store.disk.Overwrite(b.store.path(id))
	if err != nil {
		return err
	}
	b.file = f
	_, err = f.Write(b.whole)
	return err
}

// drop closes the pack's file, and removes it: the temporary file, or the spare file with its mark.
func (b *builder) drop() error {
	var err error
	if b.file != nil {
		err, b.file = b.file.Close(), nil
	}
	if b.spare > 0 {
		return errors.Join(err, b.store.spares.drop([]header{b.head}))
	}
	if gone := b.store.disk.Remove(b.temp); !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}
