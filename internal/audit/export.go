package audit

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// page is the most records or heads that one read from the store returns.
const page = 256

func (r Record) recomputed() Hash { return sha256.Sum256(r.Body) }

// exporter writes one export. It checks the records as the verifier does.
type exporter struct {
	l       *Log
	out     *bufio.Writer
	sum     hash.Hash // the hash of all lines that were written
	after   Place
	last    Link // the end of the server's own chain when the export began
	chains  *chains
	broken  *Fault
	records int64
	heads   []Head
	headsAt Place // the place up to which heads were read from the store
}

// Export checks that the records after a place can be exported, up to the current end of the server's
// chain, and returns a function that writes them; invalid if no record has that place. An empty
// place exports everything.
//
// The function may be called once. It writes a header, each record followed by its heads, and a
// signed closing line. Damaged records are written as they are; then the closing line names the
// first damaged record instead, and the function returns an internal error.
func (l *Log) Export(ctx context.Context, after string) (func(ctx context.Context, w io.Writer) error, error) {
	var from Place
	if after != "" {
		var err error
		if from, err = ParsePlace(after); err != nil {
			return nil, err
		}
	}
	head, err := l.head(ctx)
	if err != nil {
		return nil, err
	}
	x := &exporter{l: l, sum: sha256.New(), after: from, headsAt: from, last: head.Link}
	var begin []Link
	if from != (Place{}) {
		before := Place{Chain: from.Chain, N: from.N - 1}
		r, err := l.cfg.Store.AuditRecords(ctx, before, from, 1)
		if err != nil {
			return nil, err
		}
		if len(r) != 1 {
			return nil, holdfast.Errorf(holdfast.KindInvalid, "audit.export", "the audit log has no record %s", from).
				WithHint("give --after the place of a record, at most %s, or export everything: leave --after out", head.Place)
		}
		begin = []Link{r[0].Link}
	}
	since, err := KeySince(ctx, l.cfg.Store)
	if err != nil {
		return nil, err
	}
	if since <= from.Chain && from != (Place{}) {
		since = 0 // no head in the export is signed with a former key
	}
	x.chains = newChains(l.cfg.Key.private.Public().(ed25519.PublicKey), begin, since)
	return x.write, nil
}

func (x *exporter) write(ctx context.Context, w io.Writer) error {
	x.out = bufio.NewWriterSize(w, 64<<10)
	x.put(newHeader(x.l.cfg.Key.Public(), x.chains.after, x.chains.former.since).line())
	for after, upto := x.after, x.last.Place; after.Before(upto); {
		records, err := x.l.cfg.Store.AuditRecords(ctx, after, upto, page)
		if err != nil {
			return err
		}
		if len(records) == 0 {
			break
		}
		for _, r := range records {
			if err := x.record(ctx, r); err != nil {
				return err
			}
		}
		after = records[len(records)-1].Place
	}
	if err := x.headsBefore(ctx, x.last.next()); err != nil {
		return err
	}
	if at := x.chains.at; at != x.last {
		x.note(faultAt(at.next(), "the log ends at record %s, but the server wrote record %s", at, x.last))
	}
	x.note(x.chains.end())
	if b := x.broken; b != nil {
		x.put(encode(brokenLine{Broken: b.Reason, Chain: b.Chain, N: b.N}, nil))
		if err := x.out.Flush(); err != nil {
			return err
		}
		return holdfast.Errorf(holdfast.KindInternal, "audit.export", "the audit log is damaged at record %s: %s",
			Place{Chain: b.Chain, N: b.N}, b.Reason)
	}
	x.put(x.l.cfg.Key.signEnd(x.records, Hash(x.sum.Sum(nil)), x.l.cfg.Now()).line())
	return x.out.Flush()
}

// record writes one record, after the heads of earlier records.
func (x *exporter) record(ctx context.Context, r Record) error {
	if err := x.headsBefore(ctx, r.Place); err != nil {
		return err
	}
	// A damaged body may contain a line break, which would split the record into two lines of the export.
	line := []byte(strings.ReplaceAll(string(r.line(nil)), "\n", " "))
	if x.broken == nil {
		_, err := x.chains.record(line)
		x.note(err)
	}
	x.records++
	x.put(line)
	_, err := x.out.Write(nil)
	return err
}

// note stores err in x.broken if it is a Fault and the first one.
func (x *exporter) note(err error) {
	var f *Fault
	if x.broken == nil && errors.As(err, &f) {
		x.broken = f
	}
}

// headsBefore writes the heads of the places before p that were not written yet.
func (x *exporter) headsBefore(ctx context.Context, p Place) error {
	for {
		for len(x.heads) > 0 && x.heads[0].Before(p) {
			if x.broken == nil {
				x.note(x.chains.head(x.heads[0]))
			}
			x.put(x.heads[0].line())
			x.heads = x.heads[1:]
		}
		if len(x.heads) > 0 || !x.headsAt.Before(x.last.Place) {
			return nil
		}
		more, err := x.l.cfg.Store.AuditHeads(ctx, x.headsAt, x.last.Place, page)
		if err != nil {
			return err
		}
		x.heads = more
		if x.headsAt = x.last.Place; len(more) == page {
			x.headsAt = more[len(more)-1].Place
		}
	}
}

// put writes a line. It ignores errors, because out returns its first error again from Flush.
func (x *exporter) put(line []byte) {
	for _, b := range [][]byte{line, {'\n'}} {
		_, _ = x.out.Write(b)
		x.sum.Write(b)
	}
}
