// Package pack stores blobs in pack files: compressed, optionally encrypted, and checked on every
// read.
//
// It owns the directory of packs and the format of a pack file (docs/format/pack.md). internal/app opens the store;
// internal/snapshot and packages below it import pack, too. It does not know trees, sessions or the database: the
// caller chooses the packs to search and decides which blobs are live. Invariant (I-41): a pack file never changes;
// after a crash or a power cut each pack is either complete or absent, and every pack that Commit returned is complete;
// a read returns the blob that its id names, or an error that names the pack.
//
// Before Commit returns, the content and the name of each pack are on disk. A small commit overwrites a spare file, if
// one is ready, whose name is on disk already (spare.go): so its Commit waits for the disk only once.
package pack

import (
	"encoding/hex"
	"errors"
	"time"

	"github.com/holdfast-run/holdfast"
)

// ID identifies a blob by its kind and content. It is a hash under the store's key, so that an id
// reveals nothing about the content to anyone without the key.
type ID [32]byte

// String returns the id in hexadecimal.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// PackID identifies a pack, whose file is named after it. Two packs never have the same id, even if they hold the same
// blobs, because each has a random salt. The id does not depend on the content.
type PackID [32]byte

// String returns the id in hexadecimal.
func (id PackID) String() string { return hex.EncodeToString(id[:]) }

// ParsePackID is the inverse of PackID.String. It returns invalid for any other spelling.
func ParsePackID(text string) (PackID, error) {
	var id PackID
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(id) || hex.EncodeToString(b) != text {
		return id, holdfast.Errorf(holdfast.KindInvalid, "pack id", "%s is not the id of a pack", holdfast.Quote(text))
	}
	return PackID(b), nil
}

// Kind is the use of a blob. Blobs of different kinds never have the same id, and are never in the same block.
type Kind uint8

// The kinds of blobs. The numbers are part of the format.
const (
	// Data blobs hold the content of files.
	Data Kind = 1
	// Node blobs hold the structure of trees.
	Node Kind = 2
)

// Limits in bytes. A reader refuses a file that exceeds them, so they bound its memory.
const (
	// MaxPack is the maximum size of a pack file.
	MaxPack = 16 << 20
	// MaxBlob is the maximum size of a blob.
	MaxBlob = 4 << 20
	// MaxRecord is the maximum size of a record.
	MaxRecord = 64 << 10
)

// ErrDamaged is in the chain of the errors about a pack whose file was changed after it was written, or that was
// written with another key. A header that names a newer version, or encryption while the store has no Seal, causes
// other errors.
var ErrDamaged = errors.New("the pack is damaged")

// Keys are the keys of a store. A pack can be read only with the ID that it was written with and, if it is encrypted,
// with its Seal.
type Keys struct {
	// ID is the key of the hashes that name blobs and packs, and of those that check the content of packs.
	ID [32]byte
	// Seal is the key of 32 bytes that encrypts new packs with AES-256-GCM. If it is empty, new
	// packs are not encrypted, and encrypted packs cannot be read. A store with this key also reads
	// packs that are not encrypted.
	Seal []byte
}

// Set lists packs in which a blob is searched, in this order: the search is fastest if the packs with the most wanted
// blobs come first. The caller must not remove a pack while a Reader or Writer uses it.
type Set []PackID

// Info describes a pack.
type Info struct {
	ID PackID
	// Bytes is the size of the file.
	Bytes int64
	// Raw is the size of all blobs before compression.
	Raw int64
	// Blobs and Records are the numbers of blobs and of records in the pack.
	Blobs, Records int
}

// File describes a pack's file.
type File struct {
	ID      PackID
	Bytes   int64
	ModTime time.Time
}

// Blob describes a blob in a pack.
type Blob struct {
	ID   ID
	Kind Kind
	// Size is the number of bytes before compression.
	Size int
}

// Record is the caller's own description of a commit. It is stored in the commit's last pack, so that the caller can
// rebuild its database from the packs.
type Record struct {
	// Data has at most MaxRecord bytes. If it is empty, the commit stores no record.
	Data []byte
	// Always makes Commit write a pack for the record even if the commit has no new blob.
	Always bool
}

// Live decides which blobs and records Repack keeps.
type Live struct {
	// Blob reports whether to keep a blob. It must not be nil.
	Blob func(ID) bool
	// Record reports whether to keep a record. If it is nil, all records are kept.
	Record func(data []byte) bool
}
