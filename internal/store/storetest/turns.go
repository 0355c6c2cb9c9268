package storetest

import (
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

var turnStatuses = []holdfast.TurnStatus{
	holdfast.TurnQueued, holdfast.TurnRunning, holdfast.TurnCompleted, holdfast.TurnFailed, holdfast.TurnInterrupted,
}

// insertTurn adds a turn with number n and status to, and returns its id.
func (e *env) insertTurn(id holdfast.SessionID, n int64, to holdfast.TurnStatus) holdfast.TurnID {
	e.Helper()
	turn := holdfast.TurnID(e.newID())
	c := journal.NewChange(id)
	c.Turns = []journal.TurnChange{{ID: turn, To: to, Number: n}}
	e.commit(c)
	return turn
}

func (e *env) moveTurn(id holdfast.SessionID, turn holdfast.TurnID, from, to holdfast.TurnStatus) {
	e.Helper()
	c := journal.NewChange(id)
	c.Turns = []journal.TurnChange{{ID: turn, From: from, To: to}}
	e.commit(c)
}

func (e *env) turn(id holdfast.SessionID, turn holdfast.TurnID) journal.TurnRow {
	e.Helper()
	t, err := e.Store.Turn(e.ctx, id, turn)
	e.ok(err)
	return t
}

var turnCases = []testCase{
	{"numbers turns densely", func(e *env) {
		id := e.newSession()
		for _, n := range []int64{0, 2, -1} {
			c := journal.NewChange(id)
			c.Turns = []journal.TurnChange{{ID: holdfast.TurnID(e.newID()), To: holdfast.TurnQueued, Number: n}}
			e.refuse(c, holdfast.KindConflict, num(int(n)))
		}
		e.insertTurn(id, 1, holdfast.TurnQueued)
		e.insertTurn(id, 2, holdfast.TurnQueued)
		equal(e, "last turn", e.row(id).LastTurn, 2)
		c := journal.NewChange(id)
		c.Turns = []journal.TurnChange{{ID: holdfast.TurnID(e.newID()), To: holdfast.TurnQueued, Number: 2}}
		e.refuse(c, holdfast.KindConflict, "2")
	}},
	{"moves each pair of statuses as the table says", func(e *env) {
		for _, from := range turnStatuses {
			for _, to := range turnStatuses {
				id := e.newSession()
				turn := e.insertTurn(id, 1, holdfast.TurnQueued)
				if from != holdfast.TurnQueued {
					e.moveTurn(id, turn, holdfast.TurnQueued, holdfast.TurnRunning)
				}
				if from.Terminal() {
					e.moveTurn(id, turn, holdfast.TurnRunning, from)
				}
				c := journal.NewChange(id)
				c.Turns = []journal.TurnChange{{ID: turn, From: from, To: to}}
				c.Events = events(1)
				if !from.CanBecome(to) {
					e.refuse(c, holdfast.KindConflict, string(from), string(to))
					continue
				}
				e.commit(c)
				equal(e, "status", e.turn(id, turn).Status, to)
			}
		}
	}},
	{"inserts queued and running turns only", func(e *env) {
		id := e.newSession()
		for _, to := range append(turnStatuses[2:], "", "dreaming") {
			c := journal.NewChange(id)
			c.Turns = []journal.TurnChange{{ID: holdfast.TurnID(e.newID()), To: to, Number: 1}}
			e.refuse(c, holdfast.KindConflict)
		}
		e.insertTurn(id, 1, holdfast.TurnRunning)
	}},
	{"refuses a move from another status than expected", func(e *env) {
		id := e.newSession()
		turn := e.insertTurn(id, 1, holdfast.TurnQueued)
		c := journal.NewChange(id)
		c.Turns = []journal.TurnChange{{ID: turn, From: holdfast.TurnRunning, To: holdfast.TurnCompleted}}
		e.refuse(c, holdfast.KindConflict, "queued", "running")
	}},
	{"refuses to move unknown turns and those of others", func(e *env) {
		a, b := e.newSession(), e.newSession()
		turn := e.insertTurn(a, 1, holdfast.TurnQueued)
		c := journal.NewChange(b)
		c.Turns = []journal.TurnChange{{ID: turn, From: holdfast.TurnQueued, To: holdfast.TurnRunning}}
		e.refuse(c, holdfast.KindNotFound, string(turn))
		c.Turns[0].ID = holdfast.TurnID(e.newID())
		e.refuse(c, holdfast.KindNotFound, string(c.Turns[0].ID))
		c.Turns[0].ID = ""
		e.refuse(c, holdfast.KindInvalid)
	}},
	{"refuses to insert a turn twice", func(e *env) {
		id := e.newSession()
		turn := e.insertTurn(id, 1, holdfast.TurnQueued)
		c := journal.NewChange(id)
		c.Turns = []journal.TurnChange{{ID: turn, To: holdfast.TurnQueued, Number: 2}}
		e.refuse(c, holdfast.KindConflict, string(turn))
	}},
	{"keeps times and positions", func(e *env) {
		id := e.newSession()
		begin := e.row(id).LastActiveAt
		turn := holdfast.TurnID(e.newID())
		c := journal.NewChange(id)
		c.Events = events(1)
		c.Turns = []journal.TurnChange{{ID: turn, To: holdfast.TurnQueued, Number: 1, MessageSeq: 2}}
		e.commit(c)
		got := e.turn(id, turn)
		if got.MessageSeq != 2 || got.StartedAt != nil || got.EndedAt != nil || got.CreatedAt.IsZero() || got.Session != id {
			e.Fatalf("queued: %+v", got)
		}
		equal(e, "active after queueing", e.row(id).LastActiveAt, begin)

		c = journal.NewChange(id)
		c.Events = events(2)
		c.Turns = []journal.TurnChange{{ID: turn, From: holdfast.TurnQueued, To: holdfast.TurnRunning, MessageSeq: 3}}
		done := e.commit(c)
		got = e.turn(id, turn)
		if got.MessageSeq != 3 || got.StartedAt == nil || got.EndedAt != nil {
			e.Fatalf("running: %+v", got)
		}
		equal(e, "active since", e.row(id).LastActiveAt, *got.StartedAt)
		if !done.Row.LastActiveAt.After(begin) {
			e.Fatalf("active %s, was %s", done.Row.LastActiveAt, begin)
		}

		c.Turns = []journal.TurnChange{{ID: turn, From: holdfast.TurnRunning, To: holdfast.TurnCompleted, EndSeq: 5}}
		e.commit(c)
		got = e.turn(id, turn)
		if got.MessageSeq != 3 || got.EndSeq != 5 || got.StartedAt == nil || got.EndedAt == nil || got.EndedAt.Location() != time.UTC {
			e.Fatalf("completed: %+v", got)
		}
		equal(e, "active at", e.row(id).LastActiveAt, *got.EndedAt)
	}},
	{"refuses positions outside the log", func(e *env) {
		id := e.newSession()
		for _, seq := range []int64{-1, 3} {
			c := journal.NewChange(id)
			c.Events = events(1)
			c.Turns = []journal.TurnChange{{ID: holdfast.TurnID(e.newID()), To: holdfast.TurnQueued, Number: 1, MessageSeq: seq}}
			e.refuse(c, holdfast.KindInvalid, "#"+num(int(seq)))
		}
	}},
	{"counts completed turns only", func(e *env) {
		id := e.newSession()
		for i, to := range []holdfast.TurnStatus{
			holdfast.TurnCompleted, holdfast.TurnFailed, holdfast.TurnCompleted, holdfast.TurnInterrupted,
		} {
			turn := e.insertTurn(id, int64(i)+1, holdfast.TurnRunning)
			e.moveTurn(id, turn, holdfast.TurnRunning, to)
		}
		equal(e, "completed", e.row(id).CompletedTurns, 2)
	}},
	{"walks several turns, and one of them twice, in one change", func(e *env) {
		id := e.newSession()
		a := e.insertTurn(id, 1, holdfast.TurnRunning)
		b := e.insertTurn(id, 2, holdfast.TurnQueued)
		c := journal.NewChange(id)
		d := holdfast.TurnID(e.newID())
		c.Turns = []journal.TurnChange{
			{ID: a, From: holdfast.TurnRunning, To: holdfast.TurnInterrupted},
			{ID: d, To: holdfast.TurnQueued, Number: 3},
			{ID: b, From: holdfast.TurnQueued, To: holdfast.TurnRunning},
			{ID: b, From: holdfast.TurnRunning, To: holdfast.TurnFailed},
			{ID: d, From: holdfast.TurnQueued, To: holdfast.TurnRunning},
		}
		e.commit(c)
		equal(e, "a", e.turn(id, a).Status, holdfast.TurnInterrupted)
		equal(e, "b", e.turn(id, b).Status, holdfast.TurnFailed)
		equal(e, "d", e.turn(id, d).Status, holdfast.TurnRunning)
		c.Turns = []journal.TurnChange{
			{ID: d, From: holdfast.TurnRunning, To: holdfast.TurnFailed},
			{ID: d, From: holdfast.TurnRunning, To: holdfast.TurnCompleted},
		}
		e.refuse(c, holdfast.KindConflict, "failed")
	}},
	{"lists by number, in pages", func(e *env) {
		id := e.newSession()
		var want []holdfast.TurnID
		for n := range int64(12) {
			want = append(want, e.insertTurn(id, n+1, holdfast.TurnQueued))
		}
		e.insertTurn(e.newSession(), 1, holdfast.TurnQueued)
		var got []holdfast.TurnID
		for after := int64(0); ; {
			page, err := e.Store.Turns(e.ctx, id, after, 5)
			e.ok(err)
			if len(page) == 0 {
				break
			}
			for _, t := range page {
				equal(e, "number", t.Number, after+1)
				after = t.Number
				got = append(got, t.ID)
			}
		}
		equal(e, "turns", len(got), len(want))
		for i := range got {
			equal(e, "turn", got[i], want[i])
		}
		all, err := e.Store.Turns(e.ctx, id, 0, 0)
		e.ok(err)
		equal(e, "default limit", len(all), 12)
	}},
	{"lists open turns by session and number", func(e *env) {
		a, b := e.newSession(), e.newSession()
		b1 := e.insertTurn(b, 1, holdfast.TurnRunning)
		a1 := e.insertTurn(a, 1, holdfast.TurnRunning)
		a2 := e.insertTurn(a, 2, holdfast.TurnQueued)
		e.moveTurn(a, a1, holdfast.TurnRunning, holdfast.TurnCompleted)
		a3 := e.insertTurn(a, 3, holdfast.TurnQueued)
		one, err := e.Store.OpenTurns(e.ctx, a)
		e.ok(err)
		if len(one) != 2 || one[0].ID != a2 || one[1].ID != a3 || one[0].Session != a {
			e.Fatalf("of one session: %+v", one)
		}
		all, err := e.Store.OpenTurns(e.ctx, "")
		e.ok(err)
		if len(all) != 3 || all[0].ID != a2 || all[1].ID != a3 || all[2].ID != b1 || all[2].Session != b {
			e.Fatalf("of all: %+v", all)
		}
		_, err = e.Store.OpenTurns(e.ctx, holdfast.SessionID(e.newID()))
		e.isKind(err, holdfast.KindNotFound)
	}},
	{"is found under its own session only", func(e *env) {
		a, b := e.newSession(), e.newSession()
		turn := e.insertTurn(a, 1, holdfast.TurnQueued)
		_, err := e.Store.Turn(e.ctx, b, turn)
		e.isKind(err, holdfast.KindNotFound, string(turn))
		_, err = e.Store.Turn(e.ctx, holdfast.SessionID(e.newID()), turn)
		e.isKind(err, holdfast.KindNotFound)
		_, err = e.Store.Turns(e.ctx, holdfast.SessionID(e.newID()), 0, 0)
		e.isKind(err, holdfast.KindNotFound)
	}},
}
