package pack

import (
	"encoding/binary"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// The layout of a pack file: header, blocks, footer, trailer. docs/format/pack.md describes every
// byte. All numbers are little-endian.
const (
	version = 1

	headMagic = "HFPACK"
	tailMagic = "HFPACKED"

	headerSize  = 32 // magic 6, version 1, flags 1, key check 8, salt 16
	trailerSize = 44 // length of the footer 4, hash of the header and the footer 32, magic 8

	footerHead = 20 // numbers of blocks, blobs, records; bytes of the records and of the padding
	blockSize  = 48 // offset 4, stored 4, raw 4, kind 1, coding 1, zero 2, hash 32
	blobSize   = 44 // id 32, block 4, offset 4, length 4
	recordHead = 4  // length of the record

	// maxBlobs is the maximum number of blobs in a pack, which limits the memory of its index.
	maxBlobs = 32 << 10

	// flagSealed is the flag of a pack whose blocks and footer are encrypted.
	flagSealed = 1
	// sealSize is how many bytes encryption adds to a block or a footer.
	sealSize = 16

	// Codings of a block.
	codingRaw  = 0
	codingZstd = 1
)

const (
	// solidBlob is the size of the largest blob that shares a block with others.
	solidBlob = 64 << 10
	// solidBlock and solidBlobs are the maximum of bytes and of blobs in a shared block.
	solidBlock = 512 << 10
	solidBlobs = 8 << 10
)

// order is the byte order of every number in a pack file.
var order = binary.LittleEndian

// header is the first part of a pack file.
type header [headerSize]byte

func (k *keys) newHeader(salt []byte) (h header) {
	copy(h[:], headMagic)
	h[6] = version
	if k.seal != nil {
		h[7] = flagSealed
	}
	check := k.check(h.sealed())
	copy(h[8:16], check[:])
	copy(h[16:], salt)
	return h
}

func (h *header) sealed() bool { return h[7]&flagSealed != 0 }
func (h *header) salt() []byte { return h[16:] }

// overhead returns the number of bytes that encryption adds to each block and to the footer.
func (h *header) overhead() int {
	if h.sealed() {
		return sealSize
	}
	return 0
}

// readable returns an error if this release, or a store with these keys, cannot read a pack with the header h.
func (k *keys) readable(id PackID, h *header) error {
	switch {
	case string(h[:6]) != headMagic:
		return damaged(id, "header: not a pack file")
	case h[6] > version:
		return newer(id.String()+": header", int(h[6]))
	case h[6] < version || h[7]&^flagSealed != 0:
		return damaged(id, "header: version %d with flags %#x does not exist", h[6], h[7])
	case h.sealed() && k.seal == nil:
		return holdfast.Errorf(holdfast.KindUnavailable, "pack "+id.String(),
			"header: the pack is encrypted, and the store of packs was opened without the key for that")
	}
	if check := k.check(h.sealed()); string(check[:]) != string(h[8:16]) {
		return damaged(id, "header: the pack was written with another key")
	}
	return nil
}

// Names of files in the directory of packs. The version is part of the name, so that Open refuses
// packs of a newer release without reading them.
const (
	packSuffix = ".pack"
	tempPrefix = "."
	tempSuffix = ".tmp"
)

// name returns the file name of a pack.
func (id PackID) name() string {
	return id.String() + ".v" + strconv.Itoa(version) + packSuffix
}

// parseName parses the name of a pack's file. ok is false for any other name.
func parseName(name string) (id PackID, ver int, ok bool) {
	base, isPack := strings.CutSuffix(name, packSuffix)
	text, v, found := strings.Cut(base, ".v")
	if !isPack || !found {
		return id, 0, false
	}
	ver, err := strconv.Atoi(v)
	if err != nil || ver < 1 || strconv.Itoa(ver) != v {
		return id, 0, false
	}
	id, err = ParsePackID(text)
	return id, ver, err == nil
}

// parseMark parses the name of a mark, and returns the id of its pack. ok is false for any other name.
func parseMark(name string) (id PackID, ok bool) {
	if !isTemp(name) {
		return id, false
	}
	id, ver, ok := parseName(name[len(tempPrefix) : len(name)-len(tempSuffix)])
	return id, ok && ver == version
}

func (s *Store) path(id PackID) string { return filepath.Join(s.dir, id.name()) }

// mark returns the path of a pack's mark: a file that exists while the file of the pack may be unfinished.
func (s *Store) mark(id PackID) string { return filepath.Join(s.dir, tempPrefix+id.name()+tempSuffix) }

func damaged(id PackID, format string, args ...any) error {
	return holdfast.Errorf(holdfast.KindInternal, "pack "+id.String(), format+": %w", append(args, ErrDamaged)...)
}

func newer(name string, ver int) error {
	return holdfast.Errorf(holdfast.KindUnavailable, "pack "+name,
		"the pack's version %d is newer than the version that this release reads (%d)", ver, version).
		WithHint("use the newer release of holdfast that wrote the pack")
}
