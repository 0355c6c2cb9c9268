package audit

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/holdfast-run/holdfast"
)

// lineMax is the longest line that is accepted, in bytes, far above any that a server writes.
const lineMax = 1 << 20

// Options are what the caller of Verify knows about the chain from elsewhere.
type Options struct {
	// Key is the public key with which the heads must be signed; nil accepts the key in the file.
	Key ed25519.PublicKey
	// Known is a place that the chain must contain, such as an earlier head; nil for none.
	Known *Link
}

// Report describes a verified export.
type Report struct {
	// Records is the number of records; they are numbered First to Last. Without any, First is
	// Last+1.
	Records int64 `json:"records"`
	First   int64 `json:"first"`
	Last    int64 `json:"last"`
	// FirstTime and LastTime are the times of the first and the last record; nil without any.
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
}

// Fault is the first place at which an export does not verify, and the reason.
type Fault struct {
	// Line is the line of the export, from 1; N is the number of the record concerned.
	Line int64 `json:"line"`
	N    int64 `json:"n"`
	// Reason says why the place does not verify, as a sentence without a full stop.
	Reason string `json:"reason"`
}

// Error implements error.
func (f *Fault) Error() string { return fmt.Sprintf("line %d: record %d: %s", f.Line, f.N, f.Reason) }

// Verify reads an export to its end and verifies it; it needs memory for the longest line only. The
// error is a *Fault for the first place that does not verify, invalid if r is not an export at
// all, or the error of r.
func Verify(r io.Reader, opt Options) (Report, error) {
	v := &verifier{opt: opt, in: bufio.NewReaderSize(r, 64<<10)}
	if err := v.begin(); err != nil {
		return Report{}, err
	}
	for !v.ended {
		line, err := v.next()
		if err == nil {
			err = v.line(line)
		}
		if err != nil {
			return Report{}, err
		}
	}
	if _, err := v.in.ReadByte(); !errors.Is(err, io.EOF) {
		if err != nil {
			return Report{}, err
		}
		v.at++
		return Report{}, v.fault("the file has more bytes after the closing line")
	}
	return v.report, v.known(true)
}

type verifier struct {
	opt    Options
	in     *bufio.Reader
	buf    []byte
	at     int64 // the number of the current line
	first  Link
	link   Link // the last record that was verified
	public ed25519.PublicKey
	ended  bool
	report Report
}

func (v *verifier) fault(format string, args ...any) error {
	return v.faultAt(v.link.N+1, format, args...)
}

func (v *verifier) faultAt(n int64, format string, args ...any) error {
	return &Fault{Line: v.at, N: n, Reason: fmt.Sprintf(format, args...)}
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
	var h header
	if err != nil || !bytes.HasPrefix(line, []byte(`{"audit":`)) || json.Unmarshal(line, &h) != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "audit.verify", "this is not an export of an audit chain").
			WithHint("holdfast audit export FILE makes one")
	}
	if h.Audit != version {
		return holdfast.Errorf(holdfast.KindInvalid, "audit.verify", "the export has format version %d, this release supports version %d", h.Audit, version).
			WithHint("use the newer release of holdfast that wrote it")
	}
	public, err := ParsePublic(h.PublicKey)
	prev, ok := ParseHash(h.Prev)
	if err != nil || !ok || h.First < 1 || !bytes.Equal(h.line(), line) {
		return v.faultAt(h.First, "the header line was changed or is not valid")
	}
	if v.opt.Key != nil && !v.opt.Key.Equal(public) {
		return v.faultAt(h.First, "the export is signed with another key: %s, not %s", Fingerprint(h.PublicKey), Fingerprint(hex.EncodeToString(v.opt.Key)))
	}
	v.public, v.first = public, Link{N: h.First - 1, Hash: prev}
	if v.first.N == 0 && prev != (Hash{}) {
		return v.faultAt(1, "record 1 follows no other record, but the header names the hash %s of one", h.Prev)
	}
	v.link = v.first
	v.report = Report{First: h.First, Last: v.first.N, PublicKey: h.PublicKey, Fingerprint: Fingerprint(h.PublicKey), KeyGiven: v.opt.Key != nil}
	return v.known(false)
}

func (v *verifier) line(line []byte) error {
	switch {
	case bytes.HasPrefix(line, []byte(`{"n":`)):
		return v.record(line)
	case bytes.HasPrefix(line, []byte(`{"head":`)):
		return v.head(line)
	case bytes.HasPrefix(line, []byte(`{"end":`)):
		return v.end(line)
	case bytes.HasPrefix(line, []byte(`{"broken":`)):
		var b brokenLine
		if json.Unmarshal(line, &b) == nil {
			return v.faultAt(b.N, "the server found its chain damaged: %s", b.Broken)
		}
	}
	return v.fault("the line is not a record, a head or a closing line")
}

func (v *verifier) record(line []byte) error {
	body, hash, ok := cut(line)
	if !ok {
		return v.fault("the record has no hash")
	}
	if !bytes.HasPrefix(body, v.link.prefix(nil)) {
		return v.misplaced(line)
	}
	if Hash(sha256.Sum256(body)) != hash {
		return v.fault("the record was changed: its hash is another one")
	}
	var f fields
	if json.Unmarshal(line, &f) != nil {
		return v.fault("the record is not JSON")
	}
	at, err := time.Parse(timeFormat, f.Time)
	if err != nil || f.Type == "" || f.Data == nil {
		return v.fault("the record lacks its time, type or data")
	}
	v.link = Link{N: v.link.N + 1, Hash: hash}
	if v.report.Records++; v.report.FirstTime == nil {
		v.report.FirstTime = &at
	}
	v.report.Last, v.report.LastTime = v.link.N, &at
	return v.known(false)
}

// misplaced returns the fault of a record that does not follow the last verified record.
func (v *verifier) misplaced(line []byte) error {
	var f fields
	if json.Unmarshal(line, &f) == nil {
		switch {
		case f.N > v.link.N+1:
			return v.fault("the record is missing: record %d follows record %d", f.N, v.link.N)
		case f.N < v.link.N+1:
			return v.fault("the file has record %d in the place of this record", f.N)
		}
	}
	return v.fault("the record does not follow record %d: one of the two was changed", v.link.N)
}

func (v *verifier) head(line []byte) error {
	var l headLine
	if json.Unmarshal(line, &l) != nil || !bytes.Equal(l.line(), line) {
		return v.fault("the line of the head was changed or is not valid")
	}
	h, ok := parseHead(l.Head, l.Hash, l.Time, l.Signature)
	switch {
	case !ok || !h.Valid(v.public):
		return v.faultAt(l.Head, "the signature of the head is not valid")
	case h.N > v.link.N:
		return v.fault("the record is missing: a signed head names record %d, but the last record before it is %d", h.N, v.link.N)
	case h.N < v.link.N || h.Hash != v.link.Hash:
		return v.faultAt(h.N, "the record is not the one that its signed head names")
	}
	v.report.Heads++
	return nil
}

func (v *verifier) end(line []byte) error {
	var l endLine
	if json.Unmarshal(line, &l) != nil || !bytes.Equal(l.line(), line) {
		return v.fault("the closing line was changed or is not valid")
	}
	h, ok := parseHead(l.End, l.Hash, l.Time, l.Signature)
	prev, okPrev := ParseHash(l.Prev)
	e := ending{first: Link{N: l.First - 1, Hash: prev}, Head: h}
	switch {
	case !ok || !okPrev || !e.valid(v.public):
		return v.faultAt(l.End, "the signature of the closing line is not valid")
	case e.N > v.link.N:
		return v.fault("the record is missing: the closing line names record %d, but the last record is %d", e.N, v.link.N)
	case e.Link != v.link || e.first != v.first:
		return v.faultAt(l.End, "the closing line belongs to another export")
	}
	v.ended = true
	v.report.Hash, v.report.Exported = v.link.Hash.String(), e.Time
	return nil
}

// known compares the chain with Options.Known, the place that the caller knows. ended is true after
// the last line.
func (v *verifier) known(ended bool) error {
	k := v.opt.Known
	switch {
	case k == nil || k.N > v.link.N && !ended:
		return nil
	case k.N > v.link.N:
		return v.fault("the record is missing: the known head names record %d, but the export ends at %d", k.N, v.link.N)
	case k.N < v.first.N:
		return holdfast.Errorf(holdfast.KindInvalid, "audit.verify", "the export begins with record %d, after the known head of record %d", v.first.N+1, k.N).
			WithHint("export the whole chain: without --after")
	case k.N == v.link.N && k.Hash != v.link.Hash:
		return v.faultAt(k.N, "the record is not the one that the known head names")
	}
	return nil
}

func parseHead(n int64, hash, at, signature string) (Head, bool) {
	h, ok := ParseHash(hash)
	t, err := time.Parse(timeFormat, at)
	sig, serr := hex.DecodeString(signature)
	return Head{Link: Link{N: n, Hash: h}, Time: t, Signature: sig}, ok && err == nil && serr == nil && t.Format(timeFormat) == at
}

// ParseHead returns the head that the API's type w describes; invalid unless its signature is valid.
func ParseHead(w holdfast.AuditHead) (Head, error) {
	public, err := ParsePublic(w.PublicKey)
	if err != nil {
		return Head{}, err
	}
	h, ok := parseHead(w.N, w.Hash, w.Time.UTC().Format(timeFormat), w.Signature)
	if !ok || !h.Valid(public) {
		return Head{}, holdfast.Errorf(holdfast.KindInvalid, "audit.head", "the signature of the audit head is not valid").
			WithHint("holdfast audit head --json prints one")
	}
	return h, nil
}
