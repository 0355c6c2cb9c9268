package audit

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"time"

	"github.com/holdfast-run/holdfast"
)

// lineMax is the longest line that is accepted, in bytes, far above any that a server writes.
const lineMax = 1 << 20

// Options hold facts about the log that the caller of Verify knows from elsewhere.
type Options struct {
	// Key is the public key with which the heads must be signed; nil accepts the key in the file.
	Key ed25519.PublicKey
	// Known is a record that the export must contain, such as an earlier head; nil for none.
	Known *Link
}

// Report describes a verified export.
type Report struct {
	// Records is the number of records, Chains the number of chains that they are from.
	Records int64 `json:"records"`
	Chains  int64 `json:"chains"`
	// First is the place of the first record in the export, Last that of the last one. If the export has no record,
	// First is zero, and Last is the place after which the export begins.
	First Place `json:"first"`
	Last  Place `json:"last"`
	// FirstTime and LastTime are the times of the first and the last record; nil if the export has no record.
	FirstTime *time.Time `json:"first_time,omitempty"`
	LastTime  *time.Time `json:"last_time,omitempty"`
	// Hash is the hash of the last record, Heads the number of signed heads in the export.
	Hash  string `json:"hash"`
	Heads int64  `json:"heads"`
	// Exported is when the server finished the export.
	Exported    time.Time `json:"exported"`
	PublicKey   string    `json:"public_key"`
	Fingerprint string    `json:"fingerprint"`
	// KeyGiven is true if the heads were checked with the caller's key, not only the file's own.
	KeyGiven bool `json:"key_given"`
	// KeySince is the chain that began with the key PublicKey, 0 if that key signed the heads of all chains
	// of the export. FormerHeads is the number of heads in earlier chains, which are signed with a former
	// key: hashes cover them, but nobody checked their signatures.
	KeySince    int64 `json:"key_since,omitempty"`
	FormerHeads int64 `json:"former_heads,omitempty"`
}

// Verify reads an export to its end and verifies it, in the format of this release or of version 1.
// It needs memory for the longest line and for the signed places. The error is a *Fault for the
// first place that does not verify, invalid if r is not an export at all, or the error of r.
func Verify(r io.Reader, opt Options) (Report, error) {
	v := &verifier{opt: opt, in: bufio.NewReaderSize(r, 64<<10), sum: sha256.New()}
	err := v.verify()
	var f *Fault
	switch {
	case err == nil:
		return v.report, nil
	case errors.As(err, &f):
		f.Line = v.at
	}
	return Report{}, err
}

type verifier struct {
	opt  Options
	in   *bufio.Reader
	buf  []byte
	at   int64     // the number of the current line
	sum  hash.Hash // the hash of all lines before the current one
	seen bool      // whether the record Options.Known was read

	version int
	public  ed25519.PublicKey
	chains  *chains
	ended   bool
	report  Report
}

func (v *verifier) verify() error {
	if err := v.begin(); err != nil {
		return err
	}
	for !v.ended {
		line, err := v.next()
		if err == nil {
			err = v.line(line)
		}
		if err != nil {
			return err
		}
		v.sum.Write(v.buf)
	}
	if _, err := v.in.ReadByte(); !errors.Is(err, io.EOF) {
		if err != nil {
			return err
		}
		v.at++
		return v.fault("the file has more bytes after the closing line")
	}
	return v.knownAtEnd()
}

// fault returns a fault at the place after the last record.
func (v *verifier) fault(format string, args ...any) error {
	p := Place{N: 1}
	if v.chains != nil {
		p = v.chains.at.next()
	}
	return faultAt(p, format, args...)
}

// next returns the next line without its line break. The bytes are valid until the following call.
func (v *verifier) next() ([]byte, error) {
	v.at++
	v.buf = v.buf[:0]
	for {
		part, err := v.in.ReadSlice('\n')
		v.buf = append(v.buf, part...)
		switch {
		case len(v.buf) > lineMax:
			return nil, v.fault("the line of the export is longer than %d bytes", lineMax)
		case err == nil:
			return v.buf[:len(v.buf)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil, v.fault("the file is cut: the closing line is missing")
		default:
			return nil, err
		}
	}
}

func (v *verifier) begin() error {
	line, err := v.next()
	var f *Fault
	if err != nil && !errors.As(err, &f) {
		return err
	}
	var h struct {
		Audit     int    `json:"audit"`
		PublicKey string `json:"public_key"`
	}
	if err != nil || !bytes.HasPrefix(line, []byte(`{"audit":`)) || json.Unmarshal(line, &h) != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "audit.verify", "the file to verify is not an export of an audit log").
			WithHint("holdfast audit export FILE makes an export of the audit log")
	}
	if h.Audit < 1 || h.Audit > version {
		return holdfast.Errorf(holdfast.KindInvalid, "audit.verify", "the export has format version %d, this release supports versions 1 to %d", h.Audit, version).
			WithHint("use the newer release of holdfast that wrote the export")
	}
	after, since, ok := parseHeader(h.Audit, line)
	public, err := ParsePublic(h.PublicKey)
	if err != nil || !ok {
		return v.fault("the header line was changed or is not valid")
	}
	if v.opt.Key != nil && !v.opt.Key.Equal(public) {
		return v.fault("the export is signed with another key: %s, not %s", Fingerprint(h.PublicKey), Fingerprint(hex.EncodeToString(v.opt.Key)))
	}
	v.version, v.public, v.chains = h.Audit, public, newChains(public, after, since)
	v.report = Report{Last: v.chains.at.Place, PublicKey: h.PublicKey, Fingerprint: Fingerprint(h.PublicKey), KeyGiven: v.opt.Key != nil, KeySince: since}
	v.sum.Write(v.buf)
	return v.knownBefore()
}

// parseHeader returns the places that an export begins after, and the chain before which heads are
// signed with a former key, or 0; false if the header line does not have the only valid form.
func parseHeader(audit int, line []byte) (after []Link, since int64, ok bool) {
	if audit == 1 {
		var h oldHeader
		if json.Unmarshal(line, &h) != nil || h.First < 1 || !bytes.Equal(h.line(), line) {
			return nil, 0, false
		}
		prev, ok := ParseHash(h.Prev)
		if h.First == 1 {
			return nil, 0, ok && prev == Hash{}
		}
		return []Link{{Place: Place{N: h.First - 1}, Hash: prev}}, 0, ok
	}
	var h header
	if json.Unmarshal(line, &h) != nil || h.After == nil || h.KeySince < 0 || (h.KeySince > 0) != (audit == version) || !bytes.Equal(h.line(), line) {
		return nil, 0, false
	}
	after, ok = links(h.After)
	return after, h.KeySince, ok
}

func (v *verifier) line(line []byte) error {
	switch {
	case bytes.HasPrefix(line, []byte(`{"n":`)), v.version > 1 && bytes.HasPrefix(line, []byte(`{"chain":`)):
		return v.record(line)
	case bytes.HasPrefix(line, []byte(`{"head":`)):
		return v.head(line)
	case bytes.HasPrefix(line, []byte(`{"end":`)):
		if v.version == 1 {
			return v.oldEnd(line)
		}
		return v.end(line)
	case bytes.HasPrefix(line, []byte(`{"broken":`)):
		var b brokenLine
		if json.Unmarshal(line, &b) == nil {
			return faultAt(Place{Chain: b.Chain, N: b.N}, "the server found its log damaged: %s", b.Broken)
		}
	}
	return v.fault("the line is not a record, a head or a closing line")
}

func (v *verifier) record(line []byte) error {
	before := v.chains.at
	f, err := v.chains.record(line)
	if err != nil {
		return err
	}
	at, _ := time.Parse(timeFormat, f.Time) // no error is possible: chains.record checked the time
	if v.report.Records++; v.report.Records == 1 {
		v.report.First, v.report.FirstTime = f.place(), &at
	}
	if v.report.Records == 1 || f.Chain != before.Chain {
		v.report.Chains++
	}
	v.report.Last, v.report.LastTime = f.place(), &at
	return v.known(v.chains.at)
}

func (v *verifier) head(line []byte) error {
	var l headLine
	if json.Unmarshal(line, &l) != nil || !bytes.Equal(l.line(), line) || v.version == 1 && l.Chain != 0 {
		return v.fault("the line of the head was changed or is not valid")
	}
	h, ok := parseHead(Place{Chain: l.Chain, N: l.Head}, l.Hash, l.Time, l.Signature)
	if !ok {
		return faultAt(h.Place, "the signature of the head is not valid")
	}
	if v.report.Heads++; h.Chain < v.report.KeySince {
		v.report.FormerHeads++
	}
	return v.chains.head(h)
}

// end checks the closing line.
func (v *verifier) end(line []byte) error {
	var l endLine
	if json.Unmarshal(line, &l) != nil || !bytes.Equal(l.line(), line) {
		return v.fault("the closing line was changed or is not valid")
	}
	at, err := time.Parse(timeFormat, l.Time)
	switch {
	case err != nil || !l.valid(v.public):
		return v.fault("the signature of the closing line is not valid")
	case l.End > v.report.Records:
		return v.fault("the record is missing: the export has %d records, but its closing line says %d", v.report.Records, l.End)
	}
	if err := v.chains.end(); err != nil {
		return err
	}
	if l.End != v.report.Records || l.SHA256 != hex.EncodeToString(v.sum.Sum(nil)) {
		return v.fault("the closing line belongs to another export, or lines before it were changed")
	}
	v.finish(at)
	return nil
}

// oldEnd checks the closing line of an export of version 1.
func (v *verifier) oldEnd(line []byte) error {
	var l oldEndLine
	if json.Unmarshal(line, &l) != nil || !bytes.Equal(l.line(), line) {
		return v.fault("the closing line was changed or is not valid")
	}
	end := Place{N: l.End}
	first, _ := v.chains.start(0)
	last := v.chains.at
	at, err := time.Parse(timeFormat, l.Time)
	switch {
	case err != nil || !l.valid(v.public):
		return faultAt(end, "the signature of the closing line is not valid")
	case last.Before(end):
		return v.fault("the record is missing: the closing line names record %s, but the last record is %s", end, last)
	case last.Place != end || l.Hash != last.Hash.String() || l.First != first.N+1 || l.Prev != first.Hash.String():
		return faultAt(end, "the closing line belongs to another export")
	}
	v.finish(at)
	return nil
}

func (v *verifier) finish(at time.Time) {
	v.ended = true
	v.report.Hash, v.report.Exported = v.chains.at.Hash.String(), at
}

// knownBefore compares Options.Known with the places that the export begins after.
func (v *verifier) knownBefore() error {
	k := v.opt.Known
	if k == nil {
		return nil
	}
	start, out := v.chains.start(k.Chain)
	switch {
	case out || k.Before(start.Place):
		return holdfast.Errorf(holdfast.KindInvalid, "audit.verify", "the export begins after record %s, that of the known audit head", k).
			WithHint("export the whole audit log: leave --after out")
	case k.N == 0:
		v.seen = true
		return nil
	}
	return v.known(start)
}

// known compares Options.Known with a record that was passed.
func (v *verifier) known(l Link) error {
	k := v.opt.Known
	if k == nil || k.Place != l.Place {
		return nil
	}
	v.seen = true
	if k.Hash != l.Hash {
		return faultAt(k.Place, "the record is not the one that the known head names")
	}
	return nil
}

// knownAtEnd returns a fault if the export ended without the record that Options.Known names.
func (v *verifier) knownAtEnd() error {
	if v.opt.Known == nil || v.seen {
		return nil
	}
	return faultAt(v.opt.Known.Place, "the record is missing: the known head names it, but the export ends at %s", v.chains.at)
}
