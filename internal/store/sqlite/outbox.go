package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/webhook"
)

const (
	// outboxField and outboxData bound the payload of a delivery.
	outboxField = 64 << 10
	outboxData  = 256 << 10

	outboxCols = `o.id, o.hook, o.session, o.seq, o.type, o.turn, o.at, o.data, o.attempts, o.agent`
	// outboxFree is a delivery that no earlier one of its session holds back.
	outboxFree = `NOT EXISTS (SELECT 1 FROM outbox p WHERE p.hook = o.hook AND p.session = o.session
		AND p.id < o.id AND p.attempts < ?)`
)

type outboxWrites struct {
	put, delete, retry, forget *sql.Stmt
}

type outboxReads struct {
	due, next *sql.Stmt
}

func (w *writeStmts) prepareOutbox(p *preparer) {
	p.add(&w.outbox.put, `INSERT INTO outbox (hook, session, seq, type, turn, at, data, attempts, next_at, agent) VALUES (?,?,?,?,?,?,?,0,?,?)`)
	p.add(&w.outbox.delete, `DELETE FROM outbox WHERE id = ?`)
	p.add(&w.outbox.retry, `UPDATE outbox SET attempts = attempts + 1, next_at = ? WHERE id = ?`)
	p.add(&w.outbox.forget, `DELETE FROM outbox WHERE hook NOT IN (SELECT value FROM json_each(?))`)
}

func (r *outboxReads) prepare(p *preparer) {
	p.add(&r.due, `SELECT `+outboxCols+` FROM outbox o WHERE o.hook = ? AND o.next_at <= ? AND `+outboxFree+` ORDER BY o.id LIMIT ?`)
	p.add(&r.next, `SELECT min(o.next_at) FROM outbox o WHERE o.hook = ? AND `+outboxFree)
}

// deliver puts an event into the outbox, for each receiver that is told of it.
func (t *tx) deliver(e holdfast.Event) error {
	for _, hook := range t.s.cfg.Deliver(e.Type) {
		data := audit.Shorten(e.Data, outboxField, outboxData)
		t.pages += 2 + len(data)/pageSize
		t.outbox = true
		if _, err := t.s.w.outbox.put.ExecContext(t.ctx, hook, e.Session, e.Seq, e.Type, e.Turn, e.Time.UnixMilli(), data, t.nowMS, e.Agent); err != nil {
			return err
		}
	}
	return nil
}

// undelivered takes deliveries out of the outbox.
func (t *tx) undelivered(rows []int64) error {
	for _, row := range rows {
		t.pages++
		if _, err := t.s.w.outbox.delete.ExecContext(t.ctx, row); err != nil {
			return err
		}
	}
	return nil
}

// Deliveries implements webhook.Store.
func (s *Store) Deliveries(ctx context.Context, hook string, now time.Time, limit int) ([]webhook.Delivery, error) {
	rows, err := s.r.outbox.due.QueryContext(ctx, hook, now.UnixMilli(), webhook.HoldTries, limit)
	return collect(rows, err, func(sc scanner) (d webhook.Delivery, err error) {
		var at int64
		err = sc.Scan(&d.Row, &d.Hook, &d.Session, &d.Seq, &d.Type, &d.Turn, &at, (*[]byte)(&d.Data), &d.Attempts, &d.Agent)
		d.Time = fromMS(at)
		d.Created = d.Time
		return d, err
	})
}

// NextDelivery implements webhook.Store.
func (s *Store) NextDelivery(ctx context.Context, hook string) (time.Time, bool, error) {
	var at sql.NullInt64
	if err := s.r.outbox.next.QueryRowContext(ctx, hook, webhook.HoldTries).Scan(&at); err != nil {
		return time.Time{}, false, failure("store.outbox", err)
	}
	return fromMS(at.Int64), at.Valid, nil
}

// Delivered implements webhook.Store.
func (s *Store) Delivered(ctx context.Context, row int64) error {
	return s.doOutbox(ctx, func(t *tx) error { return t.undelivered([]int64{row}) })
}

// RetryDelivery implements webhook.Store.
func (s *Store) RetryDelivery(ctx context.Context, row int64, next time.Time) error {
	return s.doOutbox(ctx, func(t *tx) error {
		_, err := t.s.w.outbox.retry.ExecContext(t.ctx, next.UnixMilli(), row)
		return err
	})
}

// ForgetDeliveries implements webhook.Store.
func (s *Store) ForgetDeliveries(ctx context.Context, keep []string) (n int64, err error) {
	names, err := json.Marshal(append([]string{}, keep...))
	if err != nil {
		return 0, failure("store.outbox", err)
	}
	err = s.doOutbox(ctx, func(t *tx) error {
		res, err := t.s.w.outbox.forget.ExecContext(t.ctx, string(names))
		if err != nil {
			return err
		}
		n, err = res.RowsAffected()
		return err
	})
	return n, err
}

func (s *Store) doOutbox(ctx context.Context, apply func(*tx) error) error {
	return s.do(ctx, "store.outbox", &op{plan: func(*tx) error { return nil }, apply: func(t *tx) error {
		t.pages++
		return apply(t)
	}})
}
