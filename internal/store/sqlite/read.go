package sqlite

import (
	"context"
	"database/sql"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// pageBytes bounds the payloads of one page of events.
const pageBytes = 4 << 20

// Row implements engine.Store.
func (s *Store) Row(ctx context.Context, id holdfast.SessionID) (journal.Row, error) {
	if row := s.lately(ctx, id); row != nil {
		return row.Clone(), nil
	}
	row, err := scanRow(s.r.row.QueryRowContext(ctx, id))
	ok, err := found(err)
	if err != nil {
		return journal.Row{}, failure("store.row", err)
	}
	if !ok {
		return journal.Row{}, journal.NoSession(id)
	}
	return row, nil
}

// lately is the row of a session that was written a moment ago, or nil. It must
// not be changed.
func (s *Store) lately(ctx context.Context, id holdfast.SessionID) *journal.Row {
	if ctx.Err() != nil {
		return nil
	}
	return s.recent.get(id)
}

// Head implements journal.Store.
func (s *Store) Head(ctx context.Context, id holdfast.SessionID) (int64, error) {
	if row := s.lately(ctx, id); row != nil {
		return row.LastSeq, nil
	}
	var last sql.NullInt64
	ok, err := found(s.r.head.QueryRowContext(ctx, id).Scan(&last))
	if err != nil {
		return 0, failure("store.head", err)
	}
	if !ok {
		return 0, journal.NoSession(id)
	}
	return last.Int64 & journal.MaxSeq, nil
}

func (s *Store) number(ctx context.Context, id holdfast.SessionID) (int64, error) {
	if row := s.lately(ctx, id); row != nil {
		return row.Number, nil
	}
	var n int64
	ok, err := found(s.r.number.QueryRowContext(ctx, id).Scan(&n))
	if err != nil {
		return 0, failure("store.session", err)
	}
	if !ok {
		return 0, journal.NoSession(id)
	}
	return n, nil
}

// Events implements journal.Store: not_found for an unknown session. A page is
// also cut at 4 MiB of payload, so fewer events than the limit do not mean the
// end of the log; none do. Limit 0 is 100, at most 1000.
func (s *Store) Events(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]holdfast.Event, error) {
	if after < 0 {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "store.events", "after %d is negative", after)
	}
	n, err := s.number(ctx, id)
	if err != nil || after > journal.MaxSeq {
		return nil, err
	}
	limit = clampLimit(limit, 100, 1000)
	rows, err := s.r.events.QueryContext(ctx, n<<32|after, n<<32|journal.MaxSeq, limit)
	if err != nil {
		return nil, failure("store.events", err)
	}
	defer rows.Close()
	var out []holdfast.Event
	for size := 0; size < pageBytes && rows.Next(); {
		e := s.scanEvent(rows, id)
		size += len(e.Data)
		if len(out) == 64 { // a long page: room for all of it at once
			out = slices.Grow(out, limit-64)
		}
		out = append(out, e)
	}
	if err := rows.Err(); err != nil {
		if unreadable(err) {
			s.damaged(fmt.Sprintf("a page of the log of session %s", id))
		}
		return nil, failure("store.events", err)
	}
	return out, nil
}

// Rows implements engine.Store. Pages hang on the number of a session, so new
// sessions between two pages neither repeat nor hide one.
func (s *Store) Rows(ctx context.Context, q journal.Query) (journal.Page, error) {
	if q.Limit < 0 || q.Limit > 500 {
		return journal.Page{}, holdfast.Errorf(holdfast.KindInvalid, "store.rows", "limit %q is not between 1 and 500",
			strconv.Itoa(q.Limit))
	}
	limit := clampLimit(q.Limit, 50, 500)
	where, args, err := filter(q)
	if err != nil {
		return journal.Page{}, err
	}
	if q.Words != "" {
		s.index.settled(ctx, searchPatience)
	}
	query := `SELECT ` + rowCols + `, ` + lastSeq + ` FROM sessions` + where + ` ORDER BY number DESC LIMIT ?`
	rows, err := s.readDB.QueryContext(ctx, query, append(args, limit+1)...)
	if err != nil {
		return journal.Page{}, failure("store.rows", err)
	}
	defer rows.Close()
	var p journal.Page
	for rows.Next() {
		row, err := scanRow(rows)
		if err != nil {
			return journal.Page{}, failure("store.rows", err)
		}
		p.Rows = append(p.Rows, row)
	}
	if err := rows.Err(); err != nil {
		return journal.Page{}, failure("store.rows", err)
	}
	if len(p.Rows) > limit {
		p.Rows = p.Rows[:limit]
		p.Next = encodeCursor('s', p.Rows[limit-1].Number)
	}
	return p, nil
}

func filter(q journal.Query) (string, []any, error) {
	var conds []string
	var args []any
	add := func(cond string, values ...any) {
		conds, args = append(conds, cond), append(args, values...)
	}
	if q.Status != "" {
		if _, err := holdfast.ParseStatus(string(q.Status)); err != nil {
			return "", nil, err
		}
		add(`status = ?`, string(q.Status))
	}
	if q.Agent != "" {
		add(`agent = ?`, string(q.Agent))
	}
	if q.Tag != "" {
		add(`EXISTS (SELECT 1 FROM json_each(sessions.tags) WHERE value = ?)`, q.Tag)
	}
	if q.Text != "" {
		add(`instr(title_fold, ?) > 0`, strings.ToLower(q.Text))
	}
	if q.Words != "" {
		match, _, err := parseQuery(q.Words)
		if err != nil {
			return "", nil, err
		}
		add(`number IN (SELECT rowid >> 32 FROM search WHERE search MATCH ?)`, match)
	}
	if p := strings.ToLower(q.IDPart); p != "" {
		// Ids are of 0-9 a-f and the hyphen, all below the tilde. Both looks read the index
		// of the ids alone.
		add(`number IN (SELECT number FROM sessions WHERE id >= ? AND id < ? UNION SELECT number FROM sessions WHERE substr(id, -?) = ?)`,
			p, p+"~", len(p), p)
	}
	if q.Title != "" {
		add(`title_fold = ?`, strings.ToLower(q.Title))
	}
	if p := strings.ToLower(q.TitlePrefix); p != "" {
		add(`substr(title_fold, 1, ?) = ?`, utf8.RuneCountInString(p), p)
	}
	if q.Cursor != "" {
		n, err := decodeCursor('s', q.Cursor)
		if err != nil {
			return "", nil, err
		}
		add(`number < ?`, n)
	}
	if len(conds) == 0 {
		return "", nil, nil
	}
	return ` WHERE ` + strings.Join(conds, ` AND `), args, nil
}

// encodeCursor makes the cursor of a list; kind tells the lists apart.
func encodeCursor(kind byte, n int64) string {
	return base64.RawURLEncoding.EncodeToString(strconv.AppendInt([]byte{kind}, n, 10))
}

func decodeCursor(kind byte, c string) (int64, error) {
	if b, err := base64.RawURLEncoding.DecodeString(c); err == nil && len(b) > 1 && b[0] == kind {
		n, err := strconv.ParseInt(string(b[1:]), 10, 64)
		if err == nil && n > 0 && encodeCursor(kind, n) == c {
			return n, nil
		}
	}
	return 0, holdfast.Errorf(holdfast.KindInvalid, "store.rows", "%s is not a cursor", holdfast.Quote(c)).
		WithHint("use the next value of the page before")
}

// KeyRef implements engine.Store.
func (s *Store) KeyRef(ctx context.Context, k journal.Key) (string, error) {
	ref, err := keyRef(&k, s.r.key.QueryRowContext(ctx, k.Scope, k.Value))
	if err != nil {
		return "", failure("store.key", err)
	}
	return ref, nil
}

// Turn implements engine.Store.
func (s *Store) Turn(ctx context.Context, id holdfast.SessionID, turn holdfast.TurnID) (journal.TurnRow, error) {
	n, err := s.number(ctx, id)
	if err != nil {
		return journal.TurnRow{}, err
	}
	t, err := scanTurn(s.r.turn.QueryRowContext(ctx, n, turn), new(int64))
	ok, err := found(err)
	if err != nil {
		return journal.TurnRow{}, failure("store.turn", err)
	}
	if !ok {
		return journal.TurnRow{}, holdfast.Errorf(holdfast.KindNotFound, "store.turn", "session %s has no turn %s",
			id, holdfast.Quote(string(turn)))
	}
	t.Session = id
	return t, nil
}

// Turns implements engine.Store; at most 1000.
func (s *Store) Turns(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]journal.TurnRow, error) {
	n, err := s.number(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.turnRows(ctx, id, s.r.turns, n, after, clampLimit(limit, 100, 1000))
}

// OpenTurns implements engine.Store.
func (s *Store) OpenTurns(ctx context.Context, id holdfast.SessionID) ([]journal.TurnRow, error) {
	if id == "" {
		return s.turnRows(ctx, "", s.r.openAll)
	}
	n, err := s.number(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.turnRows(ctx, id, s.r.open, n)
}

// turnRows reads turns, of one session or, with its id in the result, of many.
func (s *Store) turnRows(ctx context.Context, id holdfast.SessionID, st *sql.Stmt, args ...any) ([]journal.TurnRow, error) {
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return nil, failure("store.turns", err)
	}
	defer rows.Close()
	var out []journal.TurnRow
	for rows.Next() {
		owner, dst := id, any(new(int64))
		if id == "" {
			dst = &owner
		}
		t, err := scanTurn(rows, dst)
		if err != nil {
			return nil, failure("store.turns", err)
		}
		t.Session = owner
		out = append(out, t)
	}
	if err := rows.Err(); err != nil {
		return nil, failure("store.turns", err)
	}
	return out, nil
}

// Starting implements engine.Store.
func (s *Store) Starting(ctx context.Context) ([]holdfast.SessionID, error) {
	rows, err := s.r.starting.QueryContext(ctx)
	if err != nil {
		return nil, failure("store.starting", err)
	}
	defer rows.Close()
	var out []holdfast.SessionID
	for rows.Next() {
		var id holdfast.SessionID
		if err := rows.Scan(&id); err != nil {
			return nil, failure("store.starting", err)
		}
		out = append(out, id)
	}
	if err := rows.Err(); err != nil {
		return nil, failure("store.starting", err)
	}
	return out, nil
}

// Counts counts sessions and open turns from indexes alone.
func (s *Store) Counts(ctx context.Context) (journal.Counts, error) {
	out := journal.Counts{
		Sessions:  map[holdfast.Status]int64{},
		Turns:     map[holdfast.TurnStatus]int64{holdfast.TurnQueued: 0, holdfast.TurnRunning: 0},
		Unindexed: s.index.pending(),
	}
	err := s.counted(ctx, `SELECT status, count(*) FROM sessions GROUP BY status`, func(status string, n int64) {
		out.Sessions[holdfast.Status(status)] = n
	})
	if err != nil {
		return out, err
	}
	// The partial index holds the open turns only.
	err = s.counted(ctx, `SELECT status, count(*) FROM turns INDEXED BY turns_open WHERE status IN ('queued', 'running') GROUP BY status`, func(status string, n int64) {
		out.Turns[holdfast.TurnStatus(status)] = n
	})
	if err != nil {
		return out, err
	}
	err = s.counted(ctx, `SELECT state, count(*) FROM approvals INDEXED BY approvals_pending WHERE state = 'pending' GROUP BY state`, func(_ string, n int64) {
		out.Approvals = n
	})
	return out, err
}

func (s *Store) counted(ctx context.Context, query string, add func(status string, n int64)) error {
	rows, err := s.readDB.QueryContext(ctx, query)
	if err != nil {
		return failure("store.counts", err)
	}
	defer rows.Close()
	for rows.Next() {
		var status string
		var n int64
		if err := rows.Scan(&status, &n); err != nil {
			return failure("store.counts", err)
		}
		add(status, n)
	}
	if err := rows.Err(); err != nil {
		return failure("store.counts", err)
	}
	return nil
}

func clampLimit(n, zero, most int) int {
	if n <= 0 {
		return zero
	}
	return min(n, most)
}

// newest joins each session with its newest event.
const newest = ` FROM sessions s JOIN events e ON e.id =
	(SELECT max(id) FROM events WHERE id BETWEEN s.number << 32 AND (s.number + 1 << 32) - 1)`

// NewestEvent implements engine.Log.
func (s *Store) NewestEvent(ctx context.Context) (time.Time, error) {
	var at sql.NullInt64
	if err := s.readDB.QueryRowContext(ctx, `SELECT max(e.at)`+newest).Scan(&at); err != nil {
		return time.Time{}, failure("store.events", err)
	}
	if !at.Valid {
		return time.Time{}, nil
	}
	return fromMS(at.Int64), nil
}

// ActiveSince implements engine.Log.
func (s *Store) ActiveSince(ctx context.Context, since time.Time) ([]holdfast.SessionID, error) {
	rows, err := s.readDB.QueryContext(ctx, `SELECT s.id`+newest+` WHERE e.at >= ? ORDER BY s.number`, since.UnixMilli())
	if err != nil {
		return nil, failure("store.events", err)
	}
	defer rows.Close()
	var out []holdfast.SessionID
	for rows.Next() {
		var id holdfast.SessionID
		if err := rows.Scan(&id); err != nil {
			return nil, failure("store.events", err)
		}
		out = append(out, id)
	}
	if err := rows.Err(); err != nil {
		return nil, failure("store.events", err)
	}
	return out, nil
}
