package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync/atomic"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

// auditSlots are the numbers of records that the prepared inserts write at once, largest first.
var auditSlots = [...]int{16, 4, 1}

// auditReads are the statements that read the chain.
type auditReads struct {
	records, heads, last, lastHead *sql.Stmt
}

// prepare prepares the statements with the function prepare.
func (r *auditReads) prepare(prepare func(dst **sql.Stmt, query string)) {
	prepare(&r.records, `SELECT n, hash, body FROM audit WHERE n > ? AND n <= ? ORDER BY n LIMIT ?`)
	prepare(&r.heads, `SELECT n, hash, at, signature FROM audit_heads WHERE n > ? AND n <= ? ORDER BY n LIMIT ?`)
	prepare(&r.last, `SELECT n, hash, body FROM audit ORDER BY n DESC LIMIT 1`)
	prepare(&r.lastHead, `SELECT n, hash, at, signature FROM audit_heads ORDER BY n DESC LIMIT 1`)
}

// Audit is the store of the audit chain. Records are written in the transaction of the
// change that they are about (I-25). Safe for concurrent use.
type Audit struct {
	auditReads
	db *db.DB
	// audited is called after each commit that extended the chain, with the newest record's number.
	audited func(n int64)
	off     bool

	// tip is the newest link of the chain on disk. chain is the newest link including the
	// records of the open transaction; of these, waiting are not inserted yet.
	tip     atomic.Pointer[audit.Link]
	chain   audit.Link
	waiting []audit.Record

	put     [len(auditSlots)]*sql.Stmt
	putHead *sql.Stmt
}

func newAudit(s *db.Setup, audited func(int64), off bool) *Audit {
	if audited == nil {
		audited = func(int64) {}
	}
	a := &Audit{db: s.DB(), audited: audited, off: off}
	for i, n := range auditSlots {
		s.Write(&a.put[i], `INSERT INTO audit (n, hash, body) VALUES `+db.Values(`(?,?,?)`, n))
	}
	s.Write(&a.putHead, `INSERT INTO audit_heads (n, hash, at, signature) VALUES (?,?,?,?) ON CONFLICT (n) DO NOTHING`)
	a.prepare(s.Read)
	s.Join(db.Member{Flush: a.flush, Committed: a.committed, Undone: a.undone})
	return a
}

// open reads the end of the chain at the start. If the last signed head names a later record than
// the last one stored, the records between are lost; the chain continues after the head, so that
// no record number is used twice.
func (a *Audit) open(ctx context.Context) error {
	last, head, err := a.AuditLast(ctx)
	if err != nil {
		return err
	}
	tip := last.Link
	if head.N > tip.N {
		tip = head.Link
	}
	a.tip.Store(&tip)
	a.chain = tip
	return nil
}

// event appends the audit record of an event, if the audit chain records events of its type. by
// names the caller who asked for the change.
func (a *Audit) event(t *db.Tx, e holdfast.Event, by string) {
	if a.off {
		return
	}
	data, ok := audit.Of(e.Type, e.Data)
	if !ok {
		return
	}
	a.append(t, audit.Entry{Time: e.Time, Type: e.Type, Session: e.Session, Seq: e.Seq, Turn: e.Turn, By: by, Data: data})
}

// Record appends an audit record that does not belong to a session. It implements admin.Recorder.
func (a *Audit) Record(t *db.Tx, typ holdfast.EventType, by string, data any) error {
	b, err := json.Marshal(data)
	if err == nil {
		a.append(t, audit.Entry{Time: t.Now, Type: typ, By: by, Data: b})
	}
	return err
}

// append adds a record to the chain and to those that flush inserts at the end of the transaction:
// the chain gets the records of all changes of a transaction or of none.
func (a *Audit) append(t *db.Tx, e audit.Entry) {
	r := a.chain.Next(e)
	a.chain = r.Link
	a.waiting = append(a.waiting, r)
	t.Pages += 1 + len(r.Body)/db.PageSize
}

// flush inserts the records in a.waiting.
func (a *Audit) flush(t *db.Tx) error {
	rows := a.waiting
	a.waiting = nil
	for i, n := range auditSlots {
		for len(rows) >= n {
			args := make([]any, 0, 3*n)
			for j := range rows[:n] {
				r := &rows[j]
				args = append(args, r.N, r.Hash[:], r.Body)
			}
			if _, err := a.put[i].ExecContext(t.Ctx, args...); err != nil {
				return err
			}
			rows = rows[n:]
		}
	}
	return nil
}

// committed publishes the new end of the chain after a commit, if the commit extended it.
func (a *Audit) committed() {
	if a.chain.N == a.tip.Load().N {
		return
	}
	tip := a.chain
	a.tip.Store(&tip)
	a.audited(tip.N)
}

// undone drops the records of a transaction that was rolled back.
func (a *Audit) undone() { a.chain, a.waiting = *a.tip.Load(), nil }

// AuditTip implements audit.Store.
func (a *Audit) AuditTip() audit.Link { return *a.tip.Load() }

// PutAuditHead implements audit.Store.
func (a *Audit) PutAuditHead(ctx context.Context, h audit.Head) error {
	return a.db.Do(ctx, "store.audit", &db.Op{Apply: func(t *db.Tx) error {
		t.Pages++
		_, err := a.putHead.ExecContext(t.Ctx, h.N, h.Hash[:], h.Time.UnixMilli(), h.Signature)
		return err
	}})
}

// AuditRecords implements audit.Source.
func (r *auditReads) AuditRecords(ctx context.Context, after, upto int64, limit int) ([]audit.Record, error) {
	rows, err := r.records.QueryContext(ctx, after, upto, limit)
	return db.Collect("store.audit", rows, err, scanRecord)
}

// AuditHeads implements audit.Source.
func (r *auditReads) AuditHeads(ctx context.Context, after, upto int64, limit int) ([]audit.Head, error) {
	rows, err := r.heads.QueryContext(ctx, after, upto, limit)
	return db.Collect("store.audit", rows, err, scanHead)
}

// AuditLast implements audit.Source.
func (r *auditReads) AuditLast(ctx context.Context) (last audit.Record, head audit.Head, err error) {
	// The head is read first. Otherwise a head signed between the two reads could name a record later
	// than last, which looks like lost records.
	if head, err = scanHead(r.lastHead.QueryRowContext(ctx)); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return last, head, db.Failure("store.audit", err)
	}
	if last, err = scanRecord(r.last.QueryRowContext(ctx)); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return last, head, db.Failure("store.audit", err)
	}
	return last, head, nil
}

// AuditFile reads the audit chain from a database file, which a server may be using at the same
// time.
type AuditFile struct {
	auditReads
	db *sql.DB
}

// OpenAudit opens the audit chain of the database at path for reading; not_found if the file does
// not exist or has no audit chain. The caller closes the result.
func OpenAudit(ctx context.Context, path string) (*AuditFile, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, holdfast.Errorf(holdfast.KindNotFound, "store.audit", "%w", err)
	}
	file, err := db.Look(path)
	if err != nil {
		return nil, err
	}
	f := &AuditFile{db: file}
	f.prepare(func(dst **sql.Stmt, query string) {
		if err == nil {
			*dst, err = file.PrepareContext(ctx, query)
		}
	})
	if err != nil {
		err := errors.Join(err, f.Close())
		if strings.Contains(err.Error(), "no such table") {
			return nil, holdfast.Errorf(holdfast.KindNotFound, "store.audit",
				"%s was written by a release without an audit chain", path)
		}
		return nil, db.OpenError(path, err)
	}
	return f, nil
}

// Close closes the database file.
func (f *AuditFile) Close() error { return f.db.Close() }

func scanRecord(sc db.Scanner) (r audit.Record, err error) {
	var hash []byte
	err = sc.Scan(&r.N, &hash, &r.Body)
	copy(r.Hash[:], hash)
	return r, err
}

func scanHead(sc db.Scanner) (h audit.Head, err error) {
	var hash []byte
	var at int64
	err = sc.Scan(&h.N, &hash, &at, &h.Signature)
	copy(h.Hash[:], hash)
	h.Time = db.FromMS(at)
	return h, err
}
