package engine_test

import (
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/pool"
)

func everything(journal.Encoded) bool { return true }

// TestHZ17_ReadOnlyStore: sends are refused, what runs stays running in the log,
// and the next start continues it.
func TestHZ17_ReadOnlyStore(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	other := w.create(holdfast.CreateSession{})
	turn := w.send(id, "wait")
	p.wait(t)
	w.refuseWhile(everything)
	for name, send := range map[string]func() error{
		"first": func() error { _, err := w.Send(t.Context(), other, holdfast.SendMessage{Text: "x"}); return err },
		"queue": func() error { _, err := w.Send(t.Context(), id, holdfast.SendMessage{Text: "x"}); return err },
		"steer": func() error {
			_, err := w.Send(t.Context(), id, holdfast.SendMessage{Text: "x", Mode: "steer"})
			return err
		},
		"create": func() error { _, _, err := w.Create(t.Context(), holdfast.CreateSession{}, ""); return err },
		"pause":  func() error { _, err := w.Pause(t.Context(), other, holdfast.EndSession{}); return err },
		"end":    func() error { _, err := w.End(t.Context(), other, holdfast.EndSession{}); return err },
		"update": func() error {
			title := "x"
			_, err := w.Update(t.Context(), other, holdfast.UpdateSession{Title: &title})
			return err
		},
	} {
		if err := send(); !holdfast.IsKind(err, holdfast.KindUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	close(p.release) // the turn ends, and nobody can write it down
	until(t, func() bool { return w.refused.Load() > 7 })
	if got, err := w.Turn(t.Context(), id, turn.ID); err != nil || got.Status != holdfast.TurnRunning {
		t.Errorf("turn = %+v, %v", got, err)
	}
	if n := w.Health(t.Context()).RunningTurns; n != 1 {
		t.Errorf("%d turns run", n)
	}
	w.stop(false)
	w.acceptAll()
	w.start()
	if got := w.ended(id, turn.ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("turn = %+v", got)
	}
	if n := p.count(turn.ID); n != 2 {
		t.Errorf("the runtime ran %d times", n)
	}
	w.sound(id)
	w.sound(other)
}

// TestOutageThatPasses: the end of a turn is written when the store works again,
// and no second turn ran beside it meanwhile.
func TestOutageThatPasses(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "wait")
	p.wait(t)
	w.refuseWhile(func(c journal.Encoded) bool { return has(c, holdfast.EventTurnCompleted) })
	close(p.release)
	until(t, func() bool { return w.refused.Load() > 1 })
	// The store takes other writes: the message must wait for the turn's end.
	next := w.send(id, "next")
	if next.Status != holdfast.TurnQueued {
		t.Errorf("a second turn is %s while the first has no end", next.Status)
	}
	w.acceptAll()
	for _, id2 := range []holdfast.TurnID{turn.ID, next.ID} {
		if got := w.ended(id, id2); got.Status != holdfast.TurnCompleted {
			t.Errorf("turn = %+v", got)
		}
	}
	if n := p.count(turn.ID); n != 1 {
		t.Errorf("the runtime ran %d times for what was only not written down", n)
	}
	w.sound(id)
}

// TestNextTurnStartsWhenTheStoreLetsIt: a waiting turn is not forgotten because
// its start could not be written at the first try.
func TestNextTurnStartsWhenTheStoreLetsIt(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "wait")
	p.wait(t)
	queued := w.send(id, "two")
	w.refuseWhile(func(c journal.Encoded) bool { return has(c, holdfast.EventTurnStarted) })
	close(p.release)
	w.ended(id, turn.ID)
	until(t, func() bool { return w.refused.Load() > 2 })
	// A message that comes now must not overtake it.
	_, err := w.Send(t.Context(), id, holdfast.SendMessage{Text: "three"})
	w.wantKind(err, holdfast.KindUnavailable)
	w.acceptAll()
	if got := w.ended(id, queued.ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("turn = %+v", got)
	}
	w.sound(id)
}

// TestEndedWhileItsNextTurnIsTried: the engine stops trying.
func TestEndedWhileItsNextTurnIsTried(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "wait")
	p.wait(t)
	queued := w.send(id, "two")
	w.refuseWhile(func(c journal.Encoded) bool { return has(c, holdfast.EventTurnStarted) })
	close(p.release)
	w.ended(id, turn.ID)
	until(t, func() bool { return w.refused.Load() > 1 })
	if err := w.Delete(t.Context(), id, holdfast.EndSession{Purge: true}); err != nil {
		t.Fatal(err)
	}
	w.acceptAll()
	if _, err := w.Turn(t.Context(), id, queued.ID); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("a turn of a deleted session: %v", err)
	}
	if err := w.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRecordRefusedInMidTurn: the runtime begins anew from the log, its tool ran
// once, and the log says what happened.
func TestRecordRefusedInMidTurn(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.refuseWhile(func(c journal.Encoded) bool {
		return has(c, holdfast.EventToolFinished) || has(c, holdfast.EventNotice)
	})
	turn := m.send(id, script(bash("echo line >> lines"), say("ok")))
	until(t, func() bool { return m.refused.Load() > 2 })
	m.acceptAll()
	if got := m.ended(id, turn.ID); got.Status != holdfast.TurnCompleted || got.Result != "ok" {
		t.Fatalf("turn = %+v\n%s", got, m.dump(id))
	}
	if n := m.lines(id, "lines"); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
	notices := datas[holdfast.Notice](m.world, id, holdfast.EventNotice)
	if !slices.ContainsFunc(notices, func(n holdfast.Notice) bool { return n.Code == "store.recovered" }) {
		t.Errorf("notices = %+v", notices)
	}
	m.sound(id)
}

// TestRecordRefusedForEver: a turn that the store fails again and again while it
// takes everything else fails in the end.
func TestRecordRefusedForEver(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.refuseWhile(func(c journal.Encoded) bool { return has(c, holdfast.EventToolStarted) })
	turn := m.send(id, script(bash("echo line >> lines"), say("ok")))
	if got := m.ended(id, turn.ID); got.Status != holdfast.TurnFailed {
		t.Errorf("turn = %+v", got)
	}
	if n := m.lines(id, "lines"); n != 0 {
		t.Errorf("the command ran %d times without an intent in the log", n)
	}
	m.acceptAll()
	if got := m.run(id, "hello"); got.Status != holdfast.TurnCompleted {
		t.Errorf("next = %+v", got)
	}
	m.sound(id)
}

func TestIncompleteConfiguration(t *testing.T) {
	_, err := engine.New(engine.Config{})
	if !holdfast.IsKind(err, holdfast.KindInternal) {
		t.Errorf("%v", err)
	}
}

// TestStartFailsWithTheDriver: a server whose boxes belong to a newer one does
// not start.
func TestStartFailsWithTheDriver(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.exec(id, "true")
	m.stop(false)
	m.pool = func(c *pool.Config) { c.Token += 100 }
	m.start()
	m.stop(false)
	m.pool = nil
	if err := m.try(); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("start: %v", err)
	}
	m.stop(false)
	m.pool = func(c *pool.Config) { c.Token += 200 }
	m.start()
}
