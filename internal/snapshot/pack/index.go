package pack

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sort"
)

// index is the footer of a pack without its records. It never changes.
type index struct {
	id      PackID
	head    header
	size    int64
	blocks  []byte // blockSize bytes each, in the order of the file
	blobs   []byte // blobSize bytes each, in the order of their ids
	records int
	// fan[b] is the number of blobs whose id begins with a byte below b.
	fan [257]uint16
}

// block is the footer's entry for a block.
type block struct {
	offset, stored, raw uint32
	kind                Kind
	coding              byte
	hash                [32]byte
}

// entry is the footer's entry for a blob: offset and length are its place within the decompressed block.
type entry struct {
	id                    ID
	block, offset, length uint32
}

func (b *block) append(to []byte) []byte {
	to = order.AppendUint32(to, b.offset)
	to = order.AppendUint32(to, b.stored)
	to = order.AppendUint32(to, b.raw)
	to = append(to, byte(b.kind), b.coding, 0, 0)
	return append(to, b.hash[:]...)
}

func (e *entry) append(to []byte) []byte {
	to = append(to, e.id[:]...)
	to = order.AppendUint32(to, e.block)
	to = order.AppendUint32(to, e.offset)
	return order.AppendUint32(to, e.length)
}

// sortEntries puts entries into the order of the footer.
func sortEntries(all []entry) {
	slices.SortFunc(all, func(a, b entry) int { return bytes.Compare(a.id[:], b.id[:]) })
}

func (x *index) blockCount() int { return len(x.blocks) / blockSize }
func (x *index) blobCount() int  { return len(x.blobs) / blobSize }

// memory returns the approximate number of bytes that the index occupies.
func (x *index) memory() int { return len(x.blocks) + len(x.blobs) + 1<<10 }

func (x *index) block(n int) (b block) {
	at := x.blocks[n*blockSize:]
	b.offset, b.stored, b.raw = order.Uint32(at), order.Uint32(at[4:]), order.Uint32(at[8:])
	b.kind, b.coding = Kind(at[12]), at[13]
	copy(b.hash[:], at[16:blockSize])
	return b
}

func (x *index) entry(n int) (e entry) {
	at := x.blobs[n*blobSize:]
	copy(e.id[:], at)
	e.block, e.offset, e.length = order.Uint32(at[32:]), order.Uint32(at[36:]), order.Uint32(at[40:])
	return e
}

// find returns the entry of a blob.
func (x *index) find(id ID) (entry, bool) {
	low, high := int(x.fan[id[0]]), int(x.fan[int(id[0])+1])
	at := low + sort.Search(high-low, func(n int) bool {
		return bytes.Compare(x.blobs[(low+n)*blobSize:][:len(id)], id[:]) >= 0
	})
	if at == high || !bytes.Equal(x.blobs[at*blobSize:][:len(id)], id[:]) {
		return entry{}, false
	}
	return x.entry(at), true
}

// ordered returns the entries in the order of the blobs in the file.
func (x *index) ordered() []entry {
	all := make([]entry, x.blobCount())
	for n := range all {
		all[n] = x.entry(n)
	}
	slices.SortFunc(all, func(a, b entry) int {
		if a.block != b.block {
			return int(a.block) - int(b.block)
		}
		return int(a.offset) - int(b.offset)
	})
	return all
}

func (x *index) info() Info {
	in := Info{ID: x.id, Bytes: x.size, Blobs: x.blobCount(), Records: x.records}
	for n := range x.blockCount() {
		in.Raw += int64(x.block(n).raw)
	}
	return in
}

// readIndex reads and checks the header, the footer and the trailer of a pack file of size bytes.
// It returns the index and the records.
func (k *keys) readIndex(id PackID, r io.ReaderAt, size int64) (*index, [][]byte, error) {
	x := &index{id: id, size: size}
	if size < headerSize+trailerSize || size > MaxPack {
		return nil, nil, damaged(id, "file: %d bytes are not a pack", size)
	}
	var trailer [trailerSize]byte
	if err := readAt(r, x.head[:], 0); err != nil {
		return nil, nil, unread(id, "header", err)
	}
	if err := k.readable(id, &x.head); err != nil {
		return nil, nil, err
	}
	if err := readAt(r, trailer[:], size-trailerSize); err != nil {
		return nil, nil, unread(id, "trailer", err)
	}
	length := int64(order.Uint32(trailer[:]))
	if string(trailer[36:]) != tailMagic || length > size-headerSize-trailerSize {
		return nil, nil, damaged(id, "trailer: the end of the file is not the end of a pack")
	}
	footer := make([]byte, length)
	at := size - trailerSize - length
	if err := readAt(r, footer, at); err != nil {
		return nil, nil, unread(id, "footer", err)
	}
	if [32]byte(trailer[4:36]) != k.sum(hashFooter, x.head[:], footer) {
		return nil, nil, damaged(id, "footer: it does not match the hash in the trailer")
	}
	if is := k.pack(&x.head); is != id {
		return nil, nil, damaged(id, "file: it has the content of pack %s", is)
	}
	footer, err := k.sealer(&x.head).open(footerPart, footer)
	if err != nil {
		return nil, nil, damaged(id, "footer: it cannot be decrypted")
	}
	records, why := x.parse(footer, at)
	if why != "" {
		return nil, nil, damaged(id, "footer: %s", why)
	}
	return x, records, nil
}

// parse fills the index from a decrypted footer, of which it keeps a copy. The blocks must end at the offset end. It
// returns the records; if the footer is not valid, why is the reason.
func (x *index) parse(footer []byte, end int64) (records [][]byte, why string) {
	if len(footer) < footerHead {
		return nil, "it is too short"
	}
	blocks, blobs := int64(order.Uint32(footer)), int64(order.Uint32(footer[4:]))
	count, bytes, padding := int64(order.Uint32(footer[8:])), int64(order.Uint32(footer[12:])), int64(order.Uint32(footer[16:]))
	tables := blocks*blockSize + blobs*blobSize
	if blobs > maxBlobs || blocks > blobs || tables+bytes+padding != int64(len(footer)-footerHead) {
		return nil, "its length does not fit its numbers"
	}
	index := slices.Clone(footer[footerHead : footerHead+tables])
	x.blocks, x.blobs = index[:blocks*blockSize:blocks*blockSize], index[blocks*blockSize:]
	if why := x.checkBlocks(end); why != "" {
		return nil, why
	}
	if why := x.checkBlobs(); why != "" {
		return nil, why
	}
	for _, b := range footer[footerHead+tables+bytes:] {
		if b != 0 {
			return nil, "its padding is not zeros"
		}
	}
	for rest := footer[footerHead+tables:][:bytes]; len(rest) > 0; {
		if len(rest) < recordHead {
			return nil, "a record is cut"
		}
		n := int64(order.Uint32(rest))
		if rest = rest[recordHead:]; n == 0 || n > MaxRecord || n > int64(len(rest)) {
			return nil, "a record has a wrong length"
		}
		records, rest = append(records, slices.Clone(rest[:n])), rest[n:]
	}
	if x.records = len(records); int64(x.records) != count {
		return nil, "the number of its records is wrong"
	}
	return records, ""
}

// checkBlocks checks that the blocks fill the file up to the offset end, and that each block is
// valid. It returns the reason if they are not.
func (x *index) checkBlocks(end int64) string {
	at, overhead := int64(headerSize), uint32(x.head.overhead())
	for n := range x.blockCount() {
		b := x.block(n)
		zero := x.blocks[n*blockSize+14:][:2]
		switch {
		case int64(b.offset) != at:
			return "its blocks do not follow each other"
		case b.kind != Data && b.kind != Node || b.coding > codingZstd || zero[0]|zero[1] != 0:
			return "a block is of an unknown kind"
		case b.raw > MaxBlob || b.stored < overhead,
			b.coding == codingRaw && b.stored-overhead != b.raw,
			b.coding == codingZstd && b.stored-overhead >= b.raw:
			return "a block has a wrong length"
		}
		at += int64(b.stored)
	}
	if at != end {
		return "its blocks do not fill the file"
	}
	return ""
}

// checkBlobs checks that the blobs are in order and fill their blocks, and sets fan. It returns the
// reason if they are not valid.
func (x *index) checkBlobs() string {
	filled := make([]int64, x.blockCount())
	var last ID
	for n := range x.blobCount() {
		e := x.entry(n)
		if n > 0 && bytes.Compare(last[:], e.id[:]) >= 0 {
			return "its blobs are not in order"
		}
		if int64(e.block) >= int64(len(filled)) || int64(e.offset)+int64(e.length) > int64(x.block(int(e.block)).raw) {
			return "a blob is outside of its block"
		}
		filled[e.block] += int64(e.length)
		x.fan[int(e.id[0])+1]++
		last = e.id
	}
	for b := range 256 {
		x.fan[b+1] += x.fan[b]
	}
	for n, bytes := range filled {
		if bytes != int64(x.block(n).raw) {
			return "the blobs of a block do not fill it"
		}
	}
	return ""
}

// readBlock reads block n, checks its hash and decrypts it. The result is still compressed.
func (k *keys) readBlock(x *index, r io.ReaderAt, n int) (block, []byte, error) {
	b := x.block(n)
	stored := make([]byte, b.stored)
	if err := readAt(r, stored, int64(b.offset)); err != nil {
		return b, nil, unread(x.id, "block", err)
	}
	if k.sum(hashBlock, stored) != b.hash {
		return b, nil, damaged(x.id, "block %d: it does not match its hash", n)
	}
	data, err := k.sealer(&x.head).open(n, stored)
	if err != nil {
		return b, nil, damaged(x.id, "block %d: it cannot be decrypted", n)
	}
	return b, data, nil
}

// checked returns the blob of an entry from its decompressed block, or an error if the blob does not
// match its id.
func (k *keys) checked(x *index, kind Kind, e entry, raw []byte) ([]byte, error) {
	data := raw[e.offset : e.offset+e.length : e.offset+e.length]
	if k.blob(kind, data) != e.id {
		return nil, damaged(x.id, "block %d: blob %s: it does not match its id", e.block, e.id)
	}
	return data, nil
}

// readAt fills b from the offset at. If the file ends before that, the error is io.ErrUnexpectedEOF.
func readAt(r io.ReaderAt, b []byte, at int64) error {
	n, err := r.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}
