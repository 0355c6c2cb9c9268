package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/schema"
)

// pageBytes limits the payload bytes of one page: a page ends once it has reached them.
const pageBytes = 4 << 20

// eventSlots are the numbers of events that the prepared inserts write at once, largest first.
var eventSlots = [...]int{32, 16, 8, 4, 2, 1}

// events is the table of events: it appends to the logs within a transaction, and reads them.
// The key of an event is the number of its session and its sequence number in the log.
type events struct {
	db *db.DB
	// waiting are the events that flush inserts, at the latest at the end of the transaction. args are the
	// arguments that flush binds. Both slices are reused.
	waiting []eventRow
	args    []any

	insert [len(eventSlots)]*sql.Stmt
	purge  *sql.Stmt
	page   *sql.Stmt
}

// eventRow is an event that waits to be inserted, with its key.
type eventRow struct {
	id     int64
	commit int64 // the number of the commit that added the event
	event  holdfast.Event
}

func newEvents(s *db.Setup) *events {
	e := &events{db: s.DB()}
	for i, n := range eventSlots {
		s.Write(&e.insert[i], db.Insert("events", "id, type, turn, at, data, sum, agent, commit_number", n))
	}
	s.Write(&e.purge, `DELETE FROM events WHERE id IN
		(SELECT id FROM events WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?)`)
	s.Read(&e.page, `SELECT id, type, turn, at, data, sum, agent FROM events WHERE id > ? AND id <= ? ORDER BY id LIMIT ?`)
	return e
}

// append adds an event to those that flush will insert, and flushes if they are many.
func (e *events) append(t *db.Tx, number, commit int64, ev holdfast.Event) error {
	e.waiting = append(e.waiting, eventRow{id: number<<32 | ev.Seq, commit: commit, event: ev})
	t.Pages += 1 + len(ev.Data)/db.PageSize
	if len(e.waiting) >= 4*eventSlots[0] {
		return e.flush(t)
	}
	return nil
}

// flush inserts the waiting events with as few statements as it can: each
// statement costs several microseconds whatever its size.
func (e *events) flush(t *db.Tx) error {
	rows := e.waiting
	defer func() {
		clear(e.waiting)
		clear(e.args[:cap(e.args)])
		e.waiting = e.waiting[:0]
	}()
	for i, n := range eventSlots {
		for len(rows) >= n {
			e.args = e.args[:0]
			for _, r := range rows[:n] {
				at := r.event.Time.UnixMilli()
				e.args = append(e.args, r.id, string(r.event.Type), string(r.event.Turn), at, []byte(r.event.Data),
					schema.Sum(r.id, at, &r.event), string(r.event.Agent), r.commit)
			}
			if _, err := e.insert[i].ExecContext(t.Ctx, e.args...); err != nil {
				return err
			}
			rows = rows[n:]
		}
	}
	return nil
}

// read returns a page of the events after a sequence number in the log of the session with this id and number.
func (e *events) read(ctx context.Context, id holdfast.SessionID, number, after int64, limit int) ([]holdfast.Event, error) {
	limit = db.Limit(limit, 100, 1000)
	rows, err := e.page.QueryContext(ctx, number<<32|after, number<<32|journal.MaxSeq, limit)
	if err != nil {
		return nil, db.Failure("store.events", err)
	}
	defer rows.Close()
	var out []holdfast.Event
	for size := 0; size < pageBytes && rows.Next(); {
		ev := e.scan(rows, id)
		size += len(ev.Data)
		if len(out) == 64 { // the page has more than 64 events: allocate room for all of them at once
			out = slices.Grow(out, limit-64)
		}
		out = append(out, ev)
	}
	if err := rows.Err(); err != nil {
		if db.Unreadable(err) {
			e.db.Damage(fmt.Sprintf("a page of the log of session %s", id))
		}
		return nil, db.Failure("store.events", err)
	}
	return out, nil
}

// scan reads an event of a session. A damaged event is returned as one of type event.damaged, so
// that the other events of its session can still be read (I-37).
func (e *events) scan(rows *sql.Rows, session holdfast.SessionID) holdfast.Event {
	ev := holdfast.Event{Session: session}
	var key, at, sum int64
	// These conversions save time: database/sql is slower with pointers to named types.
	err := rows.Scan(&key, (*string)(&ev.Type), (*string)(&ev.Turn), &at, (*[]byte)(&ev.Data), &sum, (*string)(&ev.Agent))
	ev.Seq, ev.Time = key&journal.MaxSeq, db.FromMS(at)
	if err == nil && whole(key, at, &ev, sum) {
		return ev
	}
	e.db.Damage(fmt.Sprintf("event #%d of session %s", ev.Seq, session))
	ev.Type, ev.Turn, ev.Agent = holdfast.EventDamaged, "", ""
	ev.Data = json.RawMessage(`{"reason":"its checksum does not match"}`)
	if err != nil {
		ev.Data = json.RawMessage(`{"reason":"its row cannot be read"}`)
	}
	return ev
}

// whole reports whether an event's row matches its checksum. A row from before checksums existed
// (sum < 0) passes if it has a type and valid JSON.
func whole(id, at int64, e *holdfast.Event, sum int64) bool {
	if sum < 0 {
		return e.Type != "" && utf8.Valid(e.Data) && json.Valid(e.Data)
	}
	return schema.Sum(id, at, e) == sum
}

// newest is the FROM clause that joins each session s with its newest event e.
const newest = ` FROM sessions s JOIN events e ON e.id =
	(SELECT max(id) FROM events WHERE id BETWEEN s.number << 32 AND (s.number + 1 << 32) - 1)`

// NewestEvent returns the time of the newest event of all sessions, the zero time if there is
// none.
func (s *Sessions) NewestEvent(ctx context.Context) (time.Time, error) {
	var at sql.NullInt64
	if err := s.db.Reads().QueryRowContext(ctx, `SELECT max(e.at)`+newest).Scan(&at); err != nil {
		return time.Time{}, db.Failure("store.events", err)
	}
	if !at.Valid {
		return time.Time{}, nil
	}
	return db.FromMS(at.Int64), nil
}

// ActiveSince returns the sessions whose newest event is at or after a time.
func (s *Sessions) ActiveSince(ctx context.Context, since time.Time) ([]holdfast.SessionID, error) {
	rows, err := s.db.Reads().QueryContext(ctx, `SELECT s.id`+newest+` WHERE e.at >= ? ORDER BY s.number`, since.UnixMilli())
	return db.Collect("store.events", rows, err, scanID)
}

// purgeSome removes some events of a deleted session. It returns false when it found none to remove.
func (e *events) purgeSome(t *db.Tx, number int64) (bool, error) {
	n, err := db.Affected(e.purge.ExecContext(t.Ctx, number<<32, number<<32|journal.MaxSeq, purgeEvents))
	return n > 0, err
}

// logs reads the logs of sessions by id, for the search index. It implements search.Log.
type logs struct {
	rows   *rows
	events *events
}

// Number implements search.Log.
func (l *logs) Number(ctx context.Context, id holdfast.SessionID) (int64, error) {
	return l.rows.numberOf(ctx, id)
}

// Events implements search.Log.
func (l *logs) Events(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]holdfast.Event, error) {
	n, err := l.rows.numberOf(ctx, id)
	if err != nil {
		return nil, err
	}
	return l.events.read(ctx, id, n, after, limit)
}

// Holds implements search.Log.
func (l *logs) Holds(t *db.Tx, id holdfast.SessionID, number int64) (bool, error) {
	row, err := l.rows.load(t, id)
	return row != nil && row.Number == number, err
}

// Intact implements search.Log.
func (l *logs) Intact(key, at int64, e *holdfast.Event, sum int64) bool {
	return whole(key, at, e, sum)
}
