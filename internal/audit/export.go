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

// page is how many records one read of the store asks for.
const page = 256

func (r Record) recomputed() Hash { return sha256.Sum256(r.Body) }

// exporter is an export on its way.
type exporter struct {
	l           *Log
	first, last Link
	at          Link // how far it is
	broken      *brokenLine
	heads       []Head
	headsAt     int64 // heads up to this number were read
}

// Export checks that the records after a number can be exported, and fixes the
// end: the one that the chain has now. invalid for an after beyond it.
//
// The function writes the export, once: a header, each record followed by its
// heads, and a closing line that signs the range. What is damaged is written as it
// stands, and the closing line then says where instead of signing, as does the
// error, internal: the file does not verify.
func (l *Log) Export(ctx context.Context, after int64) (func(ctx context.Context, w io.Writer) error, error) {
	head, err := l.head(ctx)
	if err != nil {
		return nil, err
	}
	if after < 0 || after > head.N {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "audit.export", "after %s is not a record of the chain", holdfast.Quote(number(after))).
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
				WithHint("export all of it: without --after")
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
		x.breakAt(x.at.N+1, "the chain ends at record "+number(x.at.N)+", a signed head names "+number(x.last.N))
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

// record writes one record, the heads before it first.
func (x *exporter) record(ctx context.Context, out *bufio.Writer, r Record) error {
	if err := x.headsUpTo(ctx, out, r.N-1); err != nil {
		return err
	}
	switch {
	case r.N != x.at.N+1:
		x.breakAt(x.at.N+1, "it is missing")
	case !bytes.HasPrefix(r.Body, x.at.prefix(nil)):
		x.breakAt(r.N, "it does not follow record "+number(x.at.N))
	case r.recomputed() != r.Hash:
		x.breakAt(r.N, "it was changed")
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

// headsUpTo writes the heads up to a number that were not written yet.
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

// put writes a line; a bufio.Writer keeps its first error for Flush.
func put(out *bufio.Writer, line []byte) {
	_, _ = out.Write(line)
	_ = out.WriteByte('\n')
}
