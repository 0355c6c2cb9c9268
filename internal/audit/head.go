package audit

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Key is the private key that signs heads. Safe for concurrent use.
type Key struct{ private ed25519.PrivateKey }

// NewKey returns the key that belongs to a seed of 32 bytes. It fails with internal if the seed has
// another length.
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
		return nil, holdfast.Errorf(holdfast.KindInvalid, "audit.key", "%s is not a public key of an audit log", holdfast.Quote(s)).
			WithHint("use the 64 hex digits that holdfast audit key prints")
	}
	return b, nil
}

// Fingerprint returns a short hash of a public key, for people to compare.
func Fingerprint(public string) string {
	sum := sha256.Sum256([]byte(public))
	return "SHA256:" + hex.EncodeToString(sum[:8])
}

// Head is a signed link: it proves that a record had this hash at that time, as far as one trusts
// the holder of the key.
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

// message returns the signed text. Heads of chain 0 were signed before chains had numbers.
func (h Head) message() []byte {
	if h.Chain == 0 {
		return message("head 1", number(h.N), h.Hash.String(), h.Time.UTC().Format(timeFormat))
	}
	return message("head 2", number(h.Chain), number(h.N), h.Hash.String(), h.Time.UTC().Format(timeFormat))
}

// message joins the fields of a signed text. The first says what is signed and in which format, so
// that no signature is valid for another kind of text.
func message(fields ...string) []byte {
	return []byte("holdfast audit " + strings.Join(fields, "\n") + "\n")
}

// Wire converts the head to the type of the HTTP API, with the public key of k.
func (h Head) Wire(k Key) holdfast.AuditHead {
	return holdfast.AuditHead{
		Chain: h.Chain, N: h.N, Hash: h.Hash.String(), Time: h.Time,
		Signature: hex.EncodeToString(h.Signature), PublicKey: k.Public(),
	}
}

// ParseHead converts a head from the type of the HTTP API; it returns invalid unless the signature is valid.
func ParseHead(w holdfast.AuditHead) (Head, error) {
	public, err := ParsePublic(w.PublicKey)
	if err != nil {
		return Head{}, err
	}
	h, ok := parseHead(Place{Chain: w.Chain, N: w.N}, w.Hash, w.Time.UTC().Format(timeFormat), w.Signature)
	if !ok || !h.Valid(public) {
		return Head{}, holdfast.Errorf(holdfast.KindInvalid, "audit.head", "the audit head is malformed, or its signature is not valid").
			WithHint("holdfast audit head --json prints a signed audit head")
	}
	return h, nil
}

// ParseKnown parses a head as a user writes it on the command line: CHAIN:N:HASH, or N:HASH for a record of
// chain 0; false for anything else.
func ParseKnown(s string) (Link, bool) {
	at := strings.LastIndexByte(s, ':')
	if at < 0 {
		return Link{}, false
	}
	place, hash := s[:at], s[at+1:]
	if !strings.Contains(place, ":") {
		place = "0:" + place
	}
	p, err := ParsePlace(place)
	h, ok := ParseHash(hash)
	return Link{Place: p, Hash: h}, err == nil && ok
}

func parseHead(p Place, hash, at, signature string) (Head, bool) {
	h, ok := ParseHash(hash)
	t, err := time.Parse(timeFormat, at)
	sig, serr := hex.DecodeString(signature)
	return Head{Link: Link{Place: p, Hash: h}, Time: t, Signature: sig}, ok && err == nil && serr == nil && t.Format(timeFormat) == at
}
