package audit

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// page is the most records or heads that one read from the store returns.
const page = 256

func (r Record) recomputed() Hash { return sha256.Sum256(r.Body) }

// exporter writes one export.
type exporter struct {
	l           *Log
	first, last Link
	at          Link // the last record that was written
	broken      *brokenLine
	heads       []Head
	headsAt     int64 // the number up to which heads were read from the store
}

// Export checks that the records after number after can be exported, up to the current end of the
// chain, and returns a function that writes them; invalid if after is beyond the end.
//
// The function may be called once. It writes a header, each record followed by its heads, and a
// closing line that signs the range. Damaged records are written as they are; then the closing line
// names the first damaged record instead of a signature, and the function returns an internal
// error.
func (l *Log) Export(ctx context.Context, after int64) (func(ctx context.Context, w io.Writer) error, error) {
	head, err := l.head(ctx)
	if err != nil {
		return nil, err
	}
	if after < 0 || after > head.N {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "audit.export", "cannot export the records after %s: the audit chain has no record with that number", holdfast.Quote(number(after))).
			WithHint("use 0 to %d", head.N)
	}
	x := &exporter{l: l, last: head.Link, first: Link{N: after}, headsAt: after}
	if after > 0 {
		r, err := l.cfg.Store.AuditRecords(ctx, after-1, after, 1)
		if err != nil {
			return nil, err
		}
		if len(r) != 1 {
			return nil, holdfast.Errorf(holdfast.KindInternal, "audit.export", "record %d of the audit chain is missing", after).
				WithHint("export the whole chain: without --after")
		}
		x.first = r[0].Link
	}
	x.at = x.first
	return x.write, nil
}

func (x *exporter) write(ctx context.Context, w io.Writer) error {
	out := bufio.NewWriterSize(w, 64<<10)
	h := header{Audit: version, PublicKey: x.l.cfg.Key.Public(), First: x.first.N + 1, Prev: x.first.Hash.String()}
	put(out, h.line())
	for after := x.first.N; after < x.last.N; {
		records, err := x.l.cfg.Store.AuditRecords(ctx, after, x.last.N, page)
		if err != nil {
			return err
		}
		if len(records) == 0 {
			break
		}
		for _, r := range records {
			if err := x.record(ctx, out, r); err != nil {
				return err
			}
		}
		after = records[len(records)-1].N
	}
	if err := x.headsUpTo(ctx, out, x.last.N); err != nil {
		return err
	}
	if x.broken == nil && x.at != x.last {
		x.breakAt(x.at.N+1, "the chain ends at record "+number(x.at.N)+", but a signed head names record "+number(x.last.N))
	}
	if x.broken != nil {
		put(out, encode(x.broken, nil))
		if err := out.Flush(); err != nil {
			return err
		}
		return holdfast.Errorf(holdfast.KindInternal, "audit.export", "the audit chain is damaged at record %d: %s", x.broken.N, x.broken.Broken)
	}
	put(out, x.l.cfg.Key.signEnding(x.first, x.last, x.l.cfg.Now()).line().line())
	return out.Flush()
}

// record writes one record, after the heads that belong before it. It notes the first record that
// does not continue the chain.
func (x *exporter) record(ctx context.Context, out *bufio.Writer, r Record) error {
	if err := x.headsUpTo(ctx, out, r.N-1); err != nil {
		return err
	}
	switch {
	case r.N != x.at.N+1:
		x.breakAt(x.at.N+1, "the record is missing")
	case !bytes.HasPrefix(r.Body, x.at.prefix(nil)):
		x.breakAt(r.N, "the record does not follow record "+number(x.at.N))
	case r.recomputed() != r.Hash:
		x.breakAt(r.N, "the record was changed")
	}
	x.at = r.Link
	// A line break in a damaged body would look like two lines.
	put(out, []byte(strings.ReplaceAll(string(r.line(nil)), "\n", " ")))
	_, err := out.Write(nil)
	return err
}

func (x *exporter) breakAt(n int64, why string) {
	if x.broken == nil {
		x.broken = &brokenLine{Broken: why, N: n}
	}
}

// headsUpTo writes the heads with numbers up to n that were not written yet.
func (x *exporter) headsUpTo(ctx context.Context, out *bufio.Writer, n int64) error {
	for {
		for len(x.heads) > 0 && x.heads[0].N <= n {
			put(out, x.heads[0].line().line())
			x.heads = x.heads[1:]
		}
		if len(x.heads) > 0 || x.headsAt >= min(n, x.last.N) {
			return nil
		}
		more, err := x.l.cfg.Store.AuditHeads(ctx, x.headsAt, x.last.N, page)
		if err != nil {
			return err
		}
		x.heads = more
		if x.headsAt = x.last.N; len(more) == page {
			x.headsAt = more[len(more)-1].N
		}
	}
}

// put writes a line. It ignores errors, because out returns its first error again from Flush.
func put(out *bufio.Writer, line []byte) {
	_, _ = out.Write(line)
	_ = out.WriteByte('\n')
}
