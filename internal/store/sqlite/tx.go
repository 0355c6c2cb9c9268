package sqlite

import (
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/schema"
)

// eventRow is an event on its way into the table.
type eventRow struct {
	id    int64
	event holdfast.Event
}

// load is a session as this transaction sees it; nil for an unknown one. The
// row must not be changed.
func (t *tx) load(id holdfast.SessionID) (*journal.Row, error) {
	if row := t.s.cache.get(id); row != nil {
		return row, nil
	}
	// The newest number is read from the table, where waiting events are not yet.
	if err := t.flush(); err != nil {
		return nil, err
	}
	row, err := scanRow(t.s.w.row.QueryRowContext(t.ctx, id))
	if ok, err := found(err); !ok {
		return nil, err
	}
	return &row, nil
}

// turn is a turn as this transaction sees it, whichever session it belongs to. Its Session
// is that of row, which may be nil, or else empty.
func (t *tx) turn(row *journal.Row, id holdfast.TurnID) (turn journal.TurnRow, ok bool, err error) {
	var owner int64
	turn, err = scanTurn(t.s.w.turnGet.QueryRowContext(t.ctx, id), &owner)
	if ok, err = found(err); !ok {
		return turn, false, err
	}
	turn.Session = ""
	if row != nil && owner == row.Number {
		turn.Session = row.ID
	}
	return turn, true, nil
}

// keyUsed is what an idempotency key stands for; empty for a new key.
func (t *tx) keyUsed(k *journal.Key) (string, error) {
	return keyRef(k, t.s.w.keys.get.QueryRowContext(t.ctx, k.Scope, k.Value))
}

// keyRef reads hash and ref of a key.
func keyRef(k *journal.Key, row scanner) (string, error) {
	var hash, ref string
	ok, err := found(row.Scan(&hash, &ref))
	if err != nil || !ok {
		return "", err
	}
	if hash != k.Hash {
		return "", holdfast.Errorf(holdfast.KindConflict, "store.commit",
			"the idempotency key %s was used for another request", holdfast.Quote(k.Value)).
			WithHint("send each request with a key of its own")
	}
	return ref, nil
}

// append adds an event to those that are inserted together.
func (t *tx) append(number int64, e holdfast.Event) error {
	t.events = append(t.events, eventRow{id: number<<32 | e.Seq, event: e})
	t.pages += 1 + len(e.Data)/pageSize
	if len(t.events) >= 4*eventSlots[0] {
		return t.flush()
	}
	return nil
}

// flush inserts the waiting events with as few statements as it can: each
// statement costs several microseconds whatever its size.
func (t *tx) flush() error {
	rows := t.events
	t.events = nil
	for i, n := range eventSlots {
		for len(rows) >= n {
			args := make([]any, 0, 7*n)
			for _, r := range rows[:n] {
				at := r.event.Time.UnixMilli()
				args = append(args, r.id, string(r.event.Type), string(r.event.Turn), at, []byte(r.event.Data),
					schema.Sum(r.id, at, &r.event), string(r.event.Agent))
			}
			if _, err := t.s.w.insertEvents[i].ExecContext(t.ctx, args...); err != nil {
				return err
			}
			rows = rows[n:]
		}
	}
	return nil
}
