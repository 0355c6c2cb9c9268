package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
	"github.com/holdfast-run/holdfast/internal/webhook"
)

const (
	// outboxField is the largest size of one text field of a delivery, and outboxData the largest size of all
	// its data, both in bytes.
	outboxField = 64 << 10
	outboxData  = 256 << 10

	outboxCols = `o.id, o.hook, o.session, o.seq, o.type, o.turn, o.at, o.data, o.attempts, o.agent`
	// outboxFree is the SQL condition that a delivery need not wait for an earlier delivery of the same
	// session to the same webhook. It must wait while the earlier one has had fewer attempts than the parameter.
	outboxFree = `NOT EXISTS (SELECT 1 FROM outbox p WHERE p.hook = o.hook AND p.session = o.session
		AND p.id < o.id AND p.attempts < ?)`
)

// Outbox is the store of deliveries to webhooks. An event and its deliveries are written in
// one transaction. Safe for concurrent use.
type Outbox struct {
	db *db.DB
	// receivers returns the webhooks that receive events of a type; filled is called after
	// each commit that put a delivery into the outbox.
	receivers func(holdfast.EventType) []string
	filled    func()
	// fills is true if the open transaction puts a delivery into the outbox.
	fills bool

	put, delete, retry, forget *sql.Stmt
	due, next                  *sql.Stmt
}

func newOutbox(s *db.Setup, receivers func(holdfast.EventType) []string, filled func()) *Outbox {
	if receivers == nil {
		receivers = func(holdfast.EventType) []string { return nil }
	}
	if filled == nil {
		filled = func() {}
	}
	o := &Outbox{db: s.DB(), receivers: receivers, filled: filled}
	s.Write(&o.put, `INSERT INTO outbox (hook, session, seq, type, turn, at, data, attempts, next_at, agent)
		VALUES (?,?,?,?,?,?,?,0,?,?)`)
	s.Write(&o.delete, `DELETE FROM outbox WHERE id = ?`)
	s.Write(&o.retry, `UPDATE outbox SET attempts = attempts + 1, next_at = ? WHERE id = ?`)
	s.Write(&o.forget, `DELETE FROM outbox WHERE hook NOT IN (SELECT value FROM json_each(?))`)
	s.Read(&o.due, `SELECT `+outboxCols+` FROM outbox o WHERE o.hook = ? AND o.next_at <= ? AND `+outboxFree+` ORDER BY o.id LIMIT ?`)
	s.Read(&o.next, `SELECT min(o.next_at) FROM outbox o WHERE o.hook = ? AND `+outboxFree)
	s.Join(db.Member{
		Committed: func() {
			if o.fills {
				o.fills = false
				o.filled()
			}
		},
		Undone: func() { o.fills = false },
	})
	return o
}

// deliver puts a delivery of an event into the outbox for each webhook that receives its type.
func (o *Outbox) deliver(t *db.Tx, e holdfast.Event) error {
	for _, hook := range o.receivers(e.Type) {
		data := audit.Shorten(e.Data, outboxField, outboxData)
		t.Pages += 2 + len(data)/db.PageSize
		o.fills = true
		_, err := o.put.ExecContext(t.Ctx, hook, e.Session, e.Seq, e.Type, e.Turn, e.Time.UnixMilli(), data, t.NowMS, e.Agent)
		if err != nil {
			return err
		}
	}
	return nil
}

// remove deletes deliveries from the outbox.
func (o *Outbox) remove(t *db.Tx, ids ...int64) error {
	for _, id := range ids {
		t.Pages++
		if _, err := o.delete.ExecContext(t.Ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// Deliveries implements webhook.Store.
func (o *Outbox) Deliveries(ctx context.Context, hook string, now time.Time, limit int) ([]webhook.Delivery, error) {
	rows, err := o.due.QueryContext(ctx, hook, now.UnixMilli(), webhook.HoldTries, limit)
	return db.Collect("store.outbox", rows, err, func(sc db.Scanner) (d webhook.Delivery, err error) {
		var at int64
		err = sc.Scan(&d.Row, &d.Hook, &d.Session, &d.Seq, &d.Type, &d.Turn, &at, (*[]byte)(&d.Data), &d.Attempts, &d.Agent)
		d.Time = db.FromMS(at)
		d.Created = d.Time
		return d, err
	})
}

// NextDelivery implements webhook.Store.
func (o *Outbox) NextDelivery(ctx context.Context, hook string) (time.Time, bool, error) {
	var at sql.NullInt64
	if err := o.next.QueryRowContext(ctx, hook, webhook.HoldTries).Scan(&at); err != nil {
		return time.Time{}, false, db.Failure("store.outbox", err)
	}
	return db.FromMS(at.Int64), at.Valid, nil
}

// Delivered implements webhook.Store.
func (o *Outbox) Delivered(ctx context.Context, row int64) error {
	return o.do(ctx, func(t *db.Tx) error { return o.remove(t, row) })
}

// RetryDelivery implements webhook.Store.
func (o *Outbox) RetryDelivery(ctx context.Context, row int64, next time.Time) error {
	return o.do(ctx, func(t *db.Tx) error {
		_, err := o.retry.ExecContext(t.Ctx, next.UnixMilli(), row)
		return err
	})
}

// ForgetDeliveries implements webhook.Store.
func (o *Outbox) ForgetDeliveries(ctx context.Context, keep []string) (n int64, err error) {
	names, err := json.Marshal(append([]string{}, keep...))
	if err != nil {
		return 0, db.Failure("store.outbox", err)
	}
	err = o.do(ctx, func(t *db.Tx) error {
		n, err = db.Affected(o.forget.ExecContext(t.Ctx, string(names)))
		return err
	})
	return n, err
}

// do carries out a transaction that changes only the outbox.
func (o *Outbox) do(ctx context.Context, apply func(*db.Tx) error) error {
	return o.db.Do(ctx, "store.outbox", &db.Op{Apply: func(t *db.Tx) error {
		t.Pages++
		return apply(t)
	}})
}
