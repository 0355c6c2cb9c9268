package pack

import (
	"crypto/aes"
	"crypto/cipher"
	"io"
	"sync"

	"github.com/zeebo/blake3"

	"github.com/holdfast-run/holdfast"
)

// Each hashed input ends with a byte for the purpose of the hash, so that hashes with different purposes are never
// equal. For a blob this byte is its Kind.
const (
	hashBlock = 0x10 + iota
	hashPack
	hashCheck
	hashSeal
	hashFooter
)

// keys hashes and encrypts with the keys of a store. Safe for concurrent use.
type keys struct {
	id   [32]byte
	seal []byte
	// pool keeps hashers (*blake3.Hasher), whose key is the field id, for later use: each needs several kilobytes.
	pool sync.Pool
}

func newKeys(k Keys) (*keys, error) {
	if len(k.Seal) != 0 && len(k.Seal) != 32 {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "packs",
			"the key that encrypts packs has %d bytes, not 32", len(k.Seal))
	}
	out := &keys{id: k.ID}
	if len(k.Seal) > 0 {
		out.seal = append(out.seal, k.Seal...)
	}
	return out, nil
}

// sum returns the keyed hash of the concatenated parts and the byte for their purpose.
func (k *keys) sum(purpose byte, parts ...[]byte) (sum [32]byte) {
	h, _ := k.pool.Get().(*blake3.Hasher)
	if h == nil {
		h = keyed(k.id[:])
	}
	for _, p := range parts {
		_, _ = h.Write(p) // a hasher never fails
	}
	_, _ = h.Write([]byte{purpose})
	h.Sum(sum[:0])
	h.Reset()
	k.pool.Put(h)
	return sum
}

// keyed returns a hasher with a key of 32 bytes.
func keyed(key []byte) *blake3.Hasher {
	h, err := blake3.NewKeyed(key)
	if err != nil {
		panic(err) // happens only for a key of another length, which newKeys refuses
	}
	return h
}

func (k *keys) blob(kind Kind, data []byte) ID { return k.sum(byte(kind), data) }

// pack returns the id of the pack that has the header h.
func (k *keys) pack(h *header) PackID { return k.sum(hashPack, h[:]) }

// check returns the key check for a header: with it a reader tells a wrong key from a damaged header. sealed says that
// the pack is encrypted.
func (k *keys) check(sealed bool) (check [8]byte) {
	var seal []byte
	if sealed {
		seal = k.seal
	}
	sum := k.sum(hashCheck, seal)
	copy(check[:], sum[:])
	return check
}

// sealer encrypts the blocks and the footer of one pack, with a key for this pack alone, and with a different nonce for
// each of them.
type sealer struct {
	head *header
	aead cipher.AEAD // nil: the pack is not encrypted
}

func (k *keys) sealer(h *header) sealer {
	if !h.sealed() {
		return sealer{head: h}
	}
	derive := keyed(k.seal)
	_, _ = derive.Write(h.salt()) // a hasher never fails
	_, _ = derive.Write([]byte{hashSeal})
	block, err := aes.NewCipher(derive.Sum(nil))
	if err != nil {
		panic(err) // happens only for a key of another length than 32 bytes
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // happens only for a cipher with another block size
	}
	return sealer{head: h, aead: aead}
}

// footerPart is the number of the footer among the parts of a pack. Blocks have the numbers from 0 on.
const footerPart = 1<<32 - 1

func nonce(part int) []byte {
	n := make([]byte, 12)
	order.PutUint32(n, uint32(part))
	return n
}

// close encrypts a part of a pack (a block or the footer) in place. In a pack that is not encrypted it changes nothing.
func (s sealer) close(part int, data []byte) []byte {
	if s.aead == nil {
		return data
	}
	return s.aead.Seal(data[:0], nonce(part), data, s.head[:])
}

// open decrypts a part that close has encrypted; it overwrites stored. It returns an error if the part was changed. In
// a pack that is not encrypted it returns stored.
func (s sealer) open(part int, stored []byte) ([]byte, error) {
	if s.aead == nil {
		return stored, nil
	}
	return s.aead.Open(stored[:0], nonce(part), stored, s.head[:])
}

// newSalt returns random bytes that make a pack unique.
func newSalt(random io.Reader) ([]byte, error) {
	salt := make([]byte, 16)
	if _, err := io.ReadFull(random, salt); err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, "packs", "cannot read random bytes for the salt of a new pack: %w", err)
	}
	return salt, nil
}
