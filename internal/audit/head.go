package audit

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Key is the private key that signs heads. Safe for concurrent use.
type Key struct{ private ed25519.PrivateKey }

// NewKey returns the key that belongs to a seed of 32 bytes; internal for another length.
func NewKey(seed []byte) (Key, error) {
	if len(seed) != ed25519.SeedSize {
		return Key{}, holdfast.Errorf(holdfast.KindInternal, "audit.key", "the seed of the audit key has %d bytes instead of %d", len(seed), ed25519.SeedSize)
	}
	return Key{ed25519.NewKeyFromSeed(seed)}, nil
}

// Public returns the public key in hexadecimal.
func (k Key) Public() string {
	return hex.EncodeToString(k.private.Public().(ed25519.PublicKey))
}

// ParsePublic parses a public key in lower-case hexadecimal.
func ParsePublic(s string) (ed25519.PublicKey, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != ed25519.PublicKeySize || strings.ToLower(s) != s {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "audit.key", "%s is not a public key of an audit chain", holdfast.Quote(s)).
			WithHint("use the 64 hex digits that holdfast audit key prints")
	}
	return b, nil
}

// Fingerprint returns a short hash of a public key, for people to compare.
func Fingerprint(public string) string {
	sum := sha256.Sum256([]byte(public))
	return "SHA256:" + hex.EncodeToString(sum[:8])
}

// Head is a signed place in the chain: it proves that record N had this hash at that time, as far as
// one trusts the holder of the key.
type Head struct {
	Link
	Time      time.Time
	Signature []byte
}

// Sign returns the signed head of a link.
func (k Key) Sign(l Link, at time.Time) Head {
	h := Head{Link: l, Time: at.UTC().Truncate(time.Millisecond)}
	h.Signature = ed25519.Sign(k.private, h.message())
	return h
}

// Valid reports whether the head's signature was made with the key that belongs to public.
func (h Head) Valid(public ed25519.PublicKey) bool {
	return ed25519.Verify(public, h.message(), h.Signature)
}

func (h Head) message() []byte {
	return []byte("holdfast audit head 1\n" + strconv.FormatInt(h.N, 10) + "\n" + h.Hash.String() + "\n" + h.Time.UTC().Format(timeFormat) + "\n")
}

// Wire returns the head as the API's type, with the public key of k.
func (h Head) Wire(k Key) holdfast.AuditHead {
	return holdfast.AuditHead{
		N: h.N, Hash: h.Hash.String(), Time: h.Time, Signature: hex.EncodeToString(h.Signature), PublicKey: k.Public(),
	}
}

// ending is the signed closing line of an export. It signs the whole exported range, so that an
// earlier head of the same chain cannot replace it.
type ending struct {
	first Link // the place before the first record
	Head
}

func (k Key) signEnding(first, last Link, at time.Time) ending {
	e := ending{first: first, Head: Head{Link: last, Time: at.UTC().Truncate(time.Millisecond)}}
	e.Signature = ed25519.Sign(k.private, e.message())
	return e
}

func (e ending) valid(public ed25519.PublicKey) bool {
	return ed25519.Verify(public, e.message(), e.Signature)
}

func (e ending) message() []byte {
	return []byte("holdfast audit end 1\n" + strconv.FormatInt(e.first.N+1, 10) + "\n" + e.first.Hash.String() + "\n" +
		strconv.FormatInt(e.N, 10) + "\n" + e.Hash.String() + "\n" + e.Time.UTC().Format(timeFormat) + "\n")
}
