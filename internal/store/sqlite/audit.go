package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strings"
	"sync/atomic"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

// auditSlots are the numbers of records that the prepared inserts write at once, largest first.
var auditSlots = [...]int{16, 4, 1}

// chainBits is the number of low bits in the key of a record's row that hold the record's number. The bits
// above them hold the number of its chain.
const chainBits = 40

// placeKey returns the database key of the record at a place. Keys are ordered as places are.
func placeKey(p audit.Place) int64 {
	if p.Chain >= 1<<(63-chainBits) {
		return math.MaxInt64
	}
	return p.Chain<<chainBits + min(p.N, 1<<chainBits-1)
}

func placeOf(key int64) audit.Place {
	return audit.Place{Chain: key >> chainBits, N: key & (1<<chainBits - 1)}
}

// auditReads are the statements that read the audit log.
type auditReads struct {
	records, heads, last, lastHead *sql.Stmt
}

// prepare prepares the statements of r by calling the function prepare for each.
func (r *auditReads) prepare(prepare func(dst **sql.Stmt, query string)) {
	prepare(&r.records, `SELECT place, hash, body FROM audit WHERE place > ? AND place <= ? ORDER BY place LIMIT ?`)
	prepare(&r.heads, `SELECT place, hash, at, signature FROM audit_heads WHERE place > ? AND place <= ? ORDER BY place LIMIT ?`)
	prepare(&r.last, `SELECT place, hash, body FROM audit WHERE place < ? ORDER BY place DESC LIMIT 1`)
	prepare(&r.lastHead, `SELECT place, hash, at, signature FROM audit_heads WHERE place < ? ORDER BY place DESC LIMIT 1`)
}

// Audit is the store of the audit log. Records are written in the transaction of the
// change that they are about (I-25). Safe for concurrent use.
type Audit struct {
	auditReads
	db *db.DB
	// audited is called after each commit that extended the chain, with the newest record's number.
	audited func(n int64)
	off     bool
	// newKey is true if the chain of this server begins with a new key.
	newKey bool

	// tip is the newest record of this server's chain that is on disk. chain is the newest record including those of
	// the open transaction. waiting are the records of the open transaction that are not inserted yet.
	tip     atomic.Pointer[audit.Link]
	chain   audit.Link
	waiting []audit.Record

	put     [len(auditSlots)]*sql.Stmt
	putHead *sql.Stmt
}

func newAudit(s *db.Setup, cfg Config) *Audit {
	a := &Audit{db: s.DB(), audited: cfg.Audited, off: cfg.noAudit, newKey: cfg.NewAuditKey}
	if a.audited == nil {
		a.audited = func(int64) {}
	}
	a.tip.Store(&audit.Link{})
	for i, n := range auditSlots {
		s.Write(&a.put[i], db.Insert("audit", "place, hash, body", n))
	}
	s.Write(&a.putHead, `INSERT INTO audit_heads (place, hash, at, signature) VALUES (?,?,?,?) ON CONFLICT (place) DO NOTHING`)
	a.prepare(s.Read)
	s.Join(db.Member{Begin: a.begin, Flush: a.flush, Committed: a.committed, Undone: a.undone})
	return a
}

// begin starts the chain of this server, in the transaction that raises the epoch. The chain's number is the
// epoch. Its first record names the end of the newest earlier chain, if there is one. That earlier chain has
// ended, because its server cannot write any more, and its own first record names the chain before it. If the
// audit key was replaced, the first record also says so.
func (a *Audit) begin(t *db.Tx) error {
	if a.off {
		return nil
	}
	chain := int64(a.db.Epoch())
	end, ok, err := a.AuditEnd(t.Ctx, chain)
	if err != nil {
		return err
	}
	var found []audit.Link
	if ok {
		found = append(found, end.Link())
	}
	var former *audit.Former
	if a.newKey && ok {
		f, err := audit.FormerHeads(t.Ctx, a, chain)
		if err != nil {
			return err
		}
		former = &f
	}
	a.add(t, audit.Begin(chain, t.Now, former, found...))
	return nil
}

// event appends the audit record of an event, if the audit log records events of its type. by
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

// append adds a record to the chain, and to the records that flush inserts at the end of the transaction. So
// a transaction that is rolled back adds none of its records to the chain.
func (a *Audit) append(t *db.Tx, e audit.Entry) {
	a.add(t, a.chain.Next(e))
}

func (a *Audit) add(t *db.Tx, r audit.Record) {
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
				args = append(args, placeKey(r.Place), r.Hash[:], r.Body)
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
	if a.chain == *a.tip.Load() {
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
		_, err := a.putHead.ExecContext(t.Ctx, placeKey(h.Place), h.Hash[:], h.Time.UnixMilli(), h.Signature)
		return err
	}})
}

// AuditRecords implements audit.Source.
func (r *auditReads) AuditRecords(ctx context.Context, after, upto audit.Place, limit int) ([]audit.Record, error) {
	rows, err := r.records.QueryContext(ctx, placeKey(after), placeKey(upto), limit)
	return db.Collect("store.audit", rows, err, scanRecord)
}

// AuditHeads implements audit.Source.
func (r *auditReads) AuditHeads(ctx context.Context, after, upto audit.Place, limit int) ([]audit.Head, error) {
	rows, err := r.heads.QueryContext(ctx, placeKey(after), placeKey(upto), limit)
	return db.Collect("store.audit", rows, err, scanHead)
}

// AuditEnd implements audit.Source.
func (r *auditReads) AuditEnd(ctx context.Context, before int64) (end audit.End, ok bool, err error) {
	below := placeKey(audit.Place{Chain: before})
	// Read the newest head before the last record. Otherwise a head that is signed between the two reads
	// could name a later record than the last one read, which looks like lost records.
	if end.Head, err = scanHead(r.lastHead.QueryRowContext(ctx, below)); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return end, false, db.Failure("store.audit", err)
	}
	if end.Last, err = scanRecord(r.last.QueryRowContext(ctx, below)); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return end, false, db.Failure("store.audit", err)
	}
	switch end.Chain = max(end.Last.Chain, end.Head.Chain); {
	case end.Last.Chain < end.Chain:
		end.Last = audit.Record{}
	case end.Head.Chain < end.Chain:
		end.Head = audit.Head{}
	}
	return end, end.Last.N+end.Head.N > 0, nil
}

// AuditFile reads the audit log from a database file, which a server may be using at the same
// time.
type AuditFile struct {
	auditReads
	db *sql.DB
}

// OpenAudit opens the audit log of the database at path for reading; not_found if the file does not exist, or
// has no audit log that this release can read. The caller closes the result.
func OpenAudit(ctx context.Context, path string) (*AuditFile, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, holdfast.Errorf(holdfast.KindNotFound, "store.audit", "the database with the audit log cannot be found: %w", err)
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
		switch {
		case strings.Contains(err.Error(), "no such column"):
			return nil, holdfast.Errorf(holdfast.KindNotFound, "store.audit",
				"the audit log in the database %s cannot be read yet: an older release wrote it, as a single chain", path).
				WithHint("start the server once, which updates the database: holdfast serve")
		case strings.Contains(err.Error(), "no such table"):
			return nil, holdfast.Errorf(holdfast.KindNotFound, "store.audit",
				"the database %s was written by a release without an audit log", path)
		}
		return nil, db.OpenError(path, err)
	}
	return f, nil
}

// Close closes the database file.
func (f *AuditFile) Close() error { return f.db.Close() }

func scanRecord(sc db.Scanner) (r audit.Record, err error) {
	var key int64
	var hash []byte
	err = sc.Scan(&key, &hash, &r.Body)
	r.Place = placeOf(key)
	copy(r.Hash[:], hash)
	return r, err
}

func scanHead(sc db.Scanner) (h audit.Head, err error) {
	var hash []byte
	var key, at int64
	err = sc.Scan(&key, &hash, &at, &h.Signature)
	h.Place = placeOf(key)
	copy(h.Hash[:], hash)
	h.Time = db.FromMS(at)
	return h, err
}
