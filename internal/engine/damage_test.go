package engine_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// damage changes the database of a stopped world as a failing disk might.
func (w *world) damage(change string, args ...any) {
	w.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(w.dir, "holdfast.db"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	res, err := db.ExecContext(context.WithoutCancel(w.t.Context()), change, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		w.t.Fatalf("%s changed %d rows, %v", change, n, err)
	}
}

// waiting stops a world with two sessions, each with a queued turn and no running one, as a kill between two turns leaves
// them. It returns the sessions and their queued turns.
func waiting(t *testing.T, w *world, p *puppet) (ids [2]holdfast.SessionID, turns [2]holdfast.Turn) {
	t.Helper()
	for i := range ids {
		ids[i] = w.create(holdfast.CreateSession{})
		w.send(ids[i], "wait")
		p.wait(t)
		turns[i] = w.send(ids[i], "next")
	}
	w.refuseWhile(func(c journal.Encoded) bool { return has(c, holdfast.EventTurnStarted) })
	for range ids {
		p.release <- struct{}{}
	}
	until(t, func() bool { return w.Health(t.Context()).RunningTurns == 0 })
	w.stop(false)
	w.acceptAll()
	return ids, turns
}

// TestDamagedQueuedMessage: a queued message that cannot be read keeps its session from starting a turn, but neither the
// server nor another session. The reason is in the log and in the answer to a new message, and the session can be ended.
func TestDamagedQueuedMessage(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	ids, turns := waiting(t, w, p)
	w.damage(`UPDATE events SET sum = sum + 1 WHERE type = 'turn.queued' AND turn = ?`, turns[0].ID)
	w.start()
	if got := w.ended(ids[1], turns[1].ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("the turn of the other session is %+v", got)
	}
	if got := w.types(ids[0]); got[turns[0].MessageSeq-1] != holdfast.EventDamaged {
		t.Errorf("the events are %v", got)
	}
	_, err := w.Send(t.Context(), ids[0], holdfast.SendMessage{Text: "more"})
	if w.wantKind(err, holdfast.KindInternal); err == nil || !strings.Contains(err.Error(), "is damaged") || holdfast.HintOf(err) == "" {
		t.Errorf("%v, hint %q", err, holdfast.HintOf(err))
	}
	if s, err := w.End(t.Context(), ids[0], holdfast.EndSession{}); err != nil || s.Status != holdfast.StatusEnded {
		t.Errorf("%+v, %v", s, err)
	}
	w.restart()
}

// TestDamagedSessionRow: a session with open turns, or with a resume that was cut off, whose row cannot be decoded keeps
// neither the server nor another session from starting.
func TestDamagedSessionRow(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	ids, turns := waiting(t, w, p)
	w.damage(`UPDATE sessions SET tags = '{' WHERE id = ?`, ids[0])
	w.start()
	if got := w.ended(ids[1], turns[1].ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("the turn of the other session is %+v", got)
	}
	_, err := w.Session(t.Context(), ids[0])
	w.wantKind(err, holdfast.KindInternal)
	w.stop(false)
	w.damage(`UPDATE sessions SET status = 'starting' WHERE id = ?`, ids[0])
	w.start()
}

// TestStartIsNotHeldByAQueuedTurn: a queued turn that the store refuses to start at the server's start does not end the
// start; it begins when the store accepts it.
func TestStartIsNotHeldByAQueuedTurn(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	ids, turns := waiting(t, w, p)
	w.refuseWhile(func(c journal.Encoded) bool { return has(c, holdfast.EventTurnStarted) })
	w.start()
	w.acceptAll()
	for i, id := range ids {
		if got := w.ended(id, turns[i].ID); got.Status != holdfast.TurnCompleted {
			t.Errorf("turn = %+v", got)
		}
		w.sound(id)
	}
}
