package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"strings"

	"modernc.org/sqlite"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/audit"
)

// auditSlots are the sizes of prepared inserts of records, largest first.
var auditSlots = [...]int{16, 4, 1}

type auditWrites struct {
	put  [len(auditSlots)]*sql.Stmt
	head *sql.Stmt
}

type auditReads struct {
	records, heads, last, lastHead *sql.Stmt
}

func (w *writeStmts) prepareAudit(p *preparer) {
	for i, n := range auditSlots {
		p.add(&w.audit.put[i], `INSERT INTO audit (n, hash, body) VALUES `+repeated(`(?,?,?)`, n))
	}
	p.add(&w.audit.head, `INSERT INTO audit_heads (n, hash, at, signature) VALUES (?,?,?,?) ON CONFLICT (n) DO NOTHING`)
}

func (r *auditReads) prepare(p *preparer) {
	p.add(&r.records, `SELECT n, hash, body FROM audit WHERE n > ? AND n <= ? ORDER BY n LIMIT ?`)
	p.add(&r.heads, `SELECT n, hash, at, signature FROM audit_heads WHERE n > ? AND n <= ? ORDER BY n LIMIT ?`)
	p.add(&r.last, `SELECT n, hash, body FROM audit ORDER BY n DESC LIMIT 1`)
	p.add(&r.lastHead, `SELECT n, hash, at, signature FROM audit_heads ORDER BY n DESC LIMIT 1`)
}

// openAudit finds the end of the chain. A head beyond the last record is the end
// then: what it names is gone, and the next record must not take its number.
func (s *Store) openAudit(ctx context.Context) error {
	last, head, err := s.AuditLast(ctx)
	if err != nil {
		return err
	}
	tip := last.Link
	if head.N > tip.N {
		tip = head.Link
	}
	s.tip.Store(&tip)
	return nil
}

// audited appends the record of an event, where it is one that is recorded.
func (t *tx) audited(e holdfast.Event, by string) {
	if t.s.cfg.noAudit {
		return
	}
	data, ok := audit.Of(e.Type, e.Data)
	if !ok {
		return
	}
	t.record(audit.Entry{Time: e.Time, Type: e.Type, Session: e.Session, Seq: e.Seq, Turn: e.Turn, By: by, Data: data})
}

// record appends a record to those that are inserted together, at the end of the
// transaction: the chain is theirs or nobody's.
func (t *tx) record(e audit.Entry) {
	r := t.chain.Next(e)
	t.chain = r.Link
	t.records = append(t.records, r)
	t.pages += 1 + len(r.Body)/pageSize
}

// recordKey records what happened to an API key.
func (t *tx) recordKey(typ holdfast.EventType, by string, data any) error {
	b, err := json.Marshal(data)
	if err == nil {
		t.record(audit.Entry{Time: t.now, Type: typ, By: by, Data: b})
	}
	return err
}

// flushAudit inserts the waiting records.
func (t *tx) flushAudit() error {
	rows := t.records
	t.records = nil
	for i, n := range auditSlots {
		for len(rows) >= n {
			args := make([]any, 0, 3*n)
			for j := range rows[:n] {
				r := &rows[j]
				args = append(args, r.N, r.Hash[:], r.Body)
			}
			if _, err := t.s.w.audit.put[i].ExecContext(t.ctx, args...); err != nil {
				return err
			}
			rows = rows[n:]
		}
	}
	return nil
}

// keepTip makes the end of the chain that was committed known.
func (t *tx) keepTip() {
	if t.chain.N == t.s.tip.Load().N {
		return
	}
	tip := t.chain
	t.s.tip.Store(&tip)
	t.s.cfg.Audited(tip.N)
}

// AuditTip implements audit.Store.
func (s *Store) AuditTip() audit.Link { return *s.tip.Load() }

// AuditRecords implements audit.Store.
func (s *Store) AuditRecords(ctx context.Context, after, upto int64, limit int) ([]audit.Record, error) {
	return s.r.audit.AuditRecords(ctx, after, upto, limit)
}

// AuditHeads implements audit.Store.
func (s *Store) AuditHeads(ctx context.Context, after, upto int64, limit int) ([]audit.Head, error) {
	return s.r.audit.AuditHeads(ctx, after, upto, limit)
}

// AuditLast implements audit.Store.
func (s *Store) AuditLast(ctx context.Context) (audit.Record, audit.Head, error) {
	return s.r.audit.AuditLast(ctx)
}

// AuditRecords implements audit.Source.
func (r *auditReads) AuditRecords(ctx context.Context, after, upto int64, limit int) ([]audit.Record, error) {
	rows, err := r.records.QueryContext(ctx, after, upto, limit)
	return collect(rows, err, scanRecord)
}

// AuditHeads implements audit.Source.
func (r *auditReads) AuditHeads(ctx context.Context, after, upto int64, limit int) ([]audit.Head, error) {
	rows, err := r.heads.QueryContext(ctx, after, upto, limit)
	return collect(rows, err, scanHead)
}

// AuditLast implements audit.Source.
func (r *auditReads) AuditLast(ctx context.Context) (last audit.Record, head audit.Head, err error) {
	// The head first: records that come meanwhile are no gap.
	if head, err = scanHead(r.lastHead.QueryRowContext(ctx)); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return last, head, failure("store.audit", err)
	}
	if last, err = scanRecord(r.last.QueryRowContext(ctx)); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return last, head, failure("store.audit", err)
	}
	return last, head, nil
}

// AuditFile is the audit chain in the file of a database that a server may be
// using: for whoever looks on from outside.
type AuditFile struct {
	auditReads
	db *sql.DB
}

// OpenAudit opens the chain of an existing database for reading; not_found when
// there is none. The caller closes it.
func OpenAudit(ctx context.Context, path string) (*AuditFile, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, holdfast.Errorf(holdfast.KindNotFound, "store.audit", "%w", err)
	}
	c, err := sqlite.NewConnector(looking(path))
	if err != nil {
		return nil, openError(path, err)
	}
	f := &AuditFile{db: sql.OpenDB(c)}
	p := preparer{ctx: ctx, prepare: f.db.PrepareContext}
	if f.prepare(&p); p.err != nil {
		err := errors.Join(p.err, f.Close())
		if strings.Contains(err.Error(), "no such table") {
			return nil, holdfast.Errorf(holdfast.KindNotFound, "store.audit", "%s is of a release without an audit chain", path)
		}
		return nil, openError(path, err)
	}
	return f, nil
}

// Close ends the reading.
func (f *AuditFile) Close() error { return f.db.Close() }

// PutAuditHead implements audit.Store.
func (s *Store) PutAuditHead(ctx context.Context, h audit.Head) error {
	return s.do(ctx, "store.audit", &op{
		plan: func(*tx) error { return nil },
		apply: func(t *tx) error {
			t.pages++
			_, err := t.s.w.audit.head.ExecContext(t.ctx, h.N, h.Hash[:], h.Time.UnixMilli(), h.Signature)
			return err
		},
	})
}

func scanRecord(sc scanner) (r audit.Record, err error) {
	var hash []byte
	err = sc.Scan(&r.N, &hash, &r.Body)
	copy(r.Hash[:], hash)
	return r, err
}

func scanHead(sc scanner) (h audit.Head, err error) {
	var hash []byte
	var at int64
	err = sc.Scan(&h.N, &hash, &at, &h.Signature)
	copy(h.Hash[:], hash)
	h.Time = fromMS(at)
	return h, err
}

// collect reads all rows of a query.
func collect[T any](rows *sql.Rows, err error, scan func(scanner) (T, error)) ([]T, error) {
	if err != nil {
		return nil, failure("store", err)
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, failure("store", err)
		}
		out = append(out, v)
	}
	if err := rows.Err(); err != nil {
		return nil, failure("store", err)
	}
	return out, nil
}
