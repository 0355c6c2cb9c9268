package audit

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"github.com/holdfast-run/holdfast"
)

// version is the version of the export's format. An export of version 1 holds one chain, which has
// no number; it is read as chain 0.
//
// An export of version 3 has heads that were signed with a former key. Other exports have version 2,
// so that earlier releases can verify them.
const (
	version       = 3
	versionOneKey = 2
)

// Each line that is not a record has exactly one valid form: the JSON encoding of its type.

// header is the first line of an export.
type header struct {
	Audit     int    `json:"audit"`
	PublicKey string `json:"public_key"`
	// After are the places after which the export begins, ordered by chain. Of a chain in the list the export
	// has only the records after the place. It also has all records of the other chains with a number above
	// that of the list's first chain. An empty list exports everything.
	After []linkLine `json:"after"`
	// KeySince is the first chain whose heads are signed with PublicKey. It is left out if all heads are.
	KeySince int64 `json:"key_since,omitempty"`
}

func (h header) line() []byte { return encode(h, nil) }

// newHeader returns the header of an export: of version 2 if since is 0, otherwise of version 3.
func newHeader(public string, after []Link, since int64) header {
	h := header{Audit: versionOneKey, PublicKey: public, After: []linkLine{}, KeySince: since}
	if since > 0 {
		h.Audit = version
	}
	for _, l := range after {
		h.After = append(h.After, l.line())
	}
	return h
}

// oldHeader is the first line of an export of version 1.
type oldHeader struct {
	Audit     int    `json:"audit"`
	PublicKey string `json:"public_key"`
	// First is the number of the export's first record, Prev the hash of the record before that one.
	First int64  `json:"first"`
	Prev  string `json:"prev"`
}

func (h oldHeader) line() []byte { return encode(h, nil) }

// linkLine is a Link in a header, or in a record that names the ends of other chains.
type linkLine struct {
	Chain int64  `json:"chain"`
	N     int64  `json:"n"`
	Hash  string `json:"hash"`
}

func (l Link) line() linkLine { return linkLine{l.Chain, l.N, l.Hash.String()} }

func (l linkLine) link() (Link, bool) {
	h, ok := ParseHash(l.Hash)
	return Link{Place: Place{Chain: l.Chain, N: l.N}, Hash: h}, ok && l.Chain >= 0 && l.N > 0
}

// links decodes a list of links; false unless all are valid and in ascending order of their chains, with each
// chain at most once.
func links(lines []linkLine) (out []Link, ok bool) {
	last := int64(-1)
	for _, line := range lines {
		l, ok := line.link()
		if !ok || l.Chain <= last {
			return nil, false
		}
		last = l.Chain
		out = append(out, l)
	}
	return out, true
}

// headLine is the line of a signed head. It follows the record that it names. Chain is left out for
// chain 0.
type headLine struct {
	Head      int64  `json:"head"`
	Chain     int64  `json:"chain,omitempty"`
	Hash      string `json:"hash"`
	Time      string `json:"time"`
	Signature string `json:"signature"`
}

func (h headLine) line() []byte { return encode(h, nil) }

func (h Head) line() []byte {
	return headLine{
		Head: h.N, Chain: h.Chain, Hash: h.Hash.String(), Time: h.Time.UTC().Format(timeFormat),
		Signature: hex.EncodeToString(h.Signature),
	}.line()
}

// endLine is the last line of an export. It is signed and has the number of the records and the SHA-256 of
// all bytes of the export before this line.
type endLine struct {
	End       int64  `json:"end"`
	SHA256    string `json:"sha256"`
	Time      string `json:"time"`
	Signature string `json:"signature"`
}

func (k Key) signEnd(records int64, sum Hash, at time.Time) endLine {
	e := endLine{End: records, SHA256: sum.String(), Time: at.UTC().Format(timeFormat)}
	e.Signature = hex.EncodeToString(ed25519.Sign(k.private, e.message()))
	return e
}

func (e endLine) valid(public ed25519.PublicKey) bool {
	sig, err := hex.DecodeString(e.Signature)
	return err == nil && ed25519.Verify(public, e.message(), sig)
}

func (e endLine) message() []byte { return message("end 2", number(e.End), e.SHA256, e.Time) }

func (e endLine) line() []byte { return encode(e, nil) }

// oldEndLine is the last line of an export of version 1. Its signature covers the number and hash of the last
// record, and First and Prev of the header.
type oldEndLine struct {
	End       int64  `json:"end"`
	Hash      string `json:"hash"`
	First     int64  `json:"first"`
	Prev      string `json:"prev"`
	Time      string `json:"time"`
	Signature string `json:"signature"`
}

func (e oldEndLine) valid(public ed25519.PublicKey) bool {
	sig, err := hex.DecodeString(e.Signature)
	return err == nil && ed25519.Verify(public, e.message(), sig)
}

func (e oldEndLine) message() []byte {
	return message("end 1", number(e.First), e.Prev, number(e.End), e.Hash, e.Time)
}

func (e oldEndLine) line() []byte { return encode(e, nil) }

// brokenLine is the last line of an export, instead of endLine, if the server itself found a damaged record.
// It names that record.
type brokenLine struct {
	Broken string `json:"broken"`
	Chain  int64  `json:"chain,omitempty"`
	N      int64  `json:"n"`
}

// fields are the fields of a record that the verifier checks.
type fields struct {
	Chain int64              `json:"chain"`
	N     int64              `json:"n"`
	Time  string             `json:"time"`
	Type  holdfast.EventType `json:"type"`
	Data  json.RawMessage    `json:"data"`
}

func (f *fields) place() Place { return Place{Chain: f.Chain, N: f.N} }

func number(n int64) string { return strconv.FormatInt(n, 10) }
