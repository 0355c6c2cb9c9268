package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// TestSendOfACallerWhoIsGone leaves the whole message or nothing.
func TestSendOfACallerWhoIsGone(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Send(gone, id, holdfast.SendMessage{Text: "x"}); err == nil {
		t.Error("acknowledged to a caller who is gone before it began")
	}
	if n := len(w.log(id)); n != 1 {
		t.Errorf("a message that was not taken left %d events", n-1)
	}
	// The caller goes while the answer is on its way: the turn is there, and runs.
	during, cancel := context.WithCancel(t.Context())
	w.whenCommitted("turn.started", cancel)
	_, _ = w.Send(during, id, holdfast.SendMessage{Text: "y", Key: "k"})
	again, err := w.Send(t.Context(), id, holdfast.SendMessage{Text: "y", Key: "k"})
	if err != nil || !again.Duplicate {
		t.Fatalf("%+v, %v", again, err)
	}
	if got := w.ended(id, again.Turn.ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("turn = %+v", got)
	}
	w.sound(id)
}

// TestSteeringReachesTheRunningTurn between two steps, and survives a restart.
func TestSteeringReachesTheRunningTurn(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %v", restart), func(t *testing.T) {
			m := newMachine(t, nil)
			id := m.create(holdfast.CreateSession{})
			turn := m.send(id, script(bash(gated), say("the old end")))
			m.appears(id, "begun")
			steered := m.sendAs(id, holdfast.SendMessage{Text: script(bash("echo new >> lines"), say("the new end")), Mode: "steer", Key: "k"})
			if steered.ID != turn.ID || steered.Status != holdfast.TurnRunning {
				t.Errorf("steered = %+v", steered)
			}
			if again, err := m.Send(t.Context(), id, holdfast.SendMessage{Text: script(bash("echo new >> lines"), say("the new end")), Mode: "steer", Key: "k"}); err != nil || !again.Duplicate {
				t.Errorf("again = %+v, %v", again, err)
			}
			if restart {
				m.restart()
			}
			m.put(id, "go", "")
			if got := m.ended(id, turn.ID); got.Status != holdfast.TurnCompleted || got.Result != "the new end" {
				t.Errorf("turn = %+v\n%s", got, m.dump(id))
			}
			if got := m.file(id, "lines"); got != "line\nnew\n" {
				t.Errorf("lines = %q", got)
			}
			m.sound(id)
		})
	}
}

// TestNobodyReadsTheLogForNoMessage: a turn that goes on after a restart knows which
// message joined it last, and a look for a newer one costs no reading.
func TestNobodyReadsTheLogForNoMessage(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	var looked error
	p.box = func(ctx context.Context, host runtime.Host) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "box")
	p.wait(t)
	w.sendAs(id, holdfast.SendMessage{Text: "box", Mode: "steer"})
	w.stop(false)
	p.box = func(ctx context.Context, host runtime.Host) error {
		joined, err := host.Steered(ctx, turn.MessageSeq)
		if err != nil || len(joined) != 1 {
			looked = fmt.Errorf("joined %v, %v", joined, err)
			return nil
		}
		before := w.reads.Load()
		for range 10 {
			if more, err := host.Steered(ctx, joined[0].Seq); err != nil || len(more) > 0 {
				looked = fmt.Errorf("joined later: %v, %v", more, err)
			}
		}
		if n := w.reads.Load() - before; n > 0 {
			looked = fmt.Errorf("10 looks read the log %d times", n)
		}
		p.entered <- turn.ID
		<-p.release
		if joined, err = host.Steered(ctx, joined[0].Seq); err != nil || len(joined) != 1 {
			looked = fmt.Errorf("a message after the restart: %v, %v", joined, err)
		}
		return nil
	}
	w.start()
	p.wait(t)
	p.wait(t)
	w.sendAs(id, holdfast.SendMessage{Text: "done", Mode: "steer"})
	close(p.release)
	if got := w.ended(id, turn.ID); got.Status != holdfast.TurnCompleted || looked != nil {
		t.Errorf("turn = %+v, %v", got, looked)
	}
	w.sound(id)
}

// TestManySendersAtOnce: every acknowledged message becomes a turn of its own,
// in the order of the numbers they were given.
func TestManySendersAtOnce(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	const sessions, senders, each = 3, 8, 6
	var ids []holdfast.SessionID
	for range sessions {
		ids = append(ids, w.create(holdfast.CreateSession{}))
	}
	var all sync.WaitGroup
	for i := range senders {
		for _, id := range ids {
			all.Go(func() {
				for k := range each {
					mode := []string{"queue", "steer", "interrupt"}[(i+k)%3]
					if _, err := w.Send(t.Context(), id, holdfast.SendMessage{Text: fmt.Sprintf("%d %d", i, k), Mode: mode}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Go(func() {
			id := ids[i%sessions]
			for range each {
				_, err := w.Interrupt(t.Context(), id)
				if err != nil && !holdfast.IsKind(err, holdfast.KindConflict) {
					t.Error(err)
				}
				title := fmt.Sprint(i)
				if _, err := w.Update(t.Context(), id, holdfast.UpdateSession{Title: &title}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for _, id := range ids {
		until(t, func() bool {
			turns, err := w.Turns(t.Context(), id, 0, 500)
			return err == nil && !slices.ContainsFunc(turns, func(t holdfast.Turn) bool { return !t.Status.Terminal() })
		})
		w.sound(id)
		messages, started := 0, int64(0)
		for _, ev := range w.log(id) {
			switch ev.Type {
			case holdfast.EventMessageUser:
				messages++
			case holdfast.EventTurnStarted:
				var d holdfast.TurnStartedData
				if err := ev.Decode(&d); err != nil || d.Number <= started {
					t.Errorf("turn %d starts after %d, %v", d.Number, started, err)
				}
				started = d.Number
			}
		}
		if messages != senders*each {
			t.Errorf("%d messages in the log of %d sent", messages, senders*each)
		}
	}
	if n := w.Health(t.Context()).RunningTurns; n != 0 {
		t.Errorf("%d turns run", n)
	}
}

func TestKeysHoldAcrossARestart(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	req := holdfast.CreateSession{Title: "once"}
	s, _, err := w.Create(t.Context(), req, "create")
	if err != nil {
		t.Fatal(err)
	}
	msg := holdfast.SendMessage{Text: "wait", Key: "send"}
	first, err := w.Send(t.Context(), s.ID, msg)
	if err != nil {
		t.Fatal(err)
	}
	queued, err := w.Send(t.Context(), s.ID, holdfast.SendMessage{Text: "two", Key: "queue"})
	if err != nil {
		t.Fatal(err)
	}
	p.wait(t)
	for range 2 {
		w.restart()
		if again, replayed, err := w.Create(t.Context(), req, "create"); err != nil || !replayed || again.ID != s.ID {
			t.Errorf("%+v, %v", again, err)
		}
		if again, err := w.Send(t.Context(), s.ID, msg); err != nil || !again.Duplicate || again.Turn.ID != first.Turn.ID || again.Seq != first.Seq {
			t.Errorf("%+v, %v", again, err)
		}
		if again, err := w.Send(t.Context(), s.ID, holdfast.SendMessage{Text: "two", Key: "queue"}); err != nil || !again.Duplicate || again.Turn.ID != queued.Turn.ID {
			t.Errorf("%+v, %v", again, err)
		}
	}
	close(p.release)
	w.ended(s.ID, first.Turn.ID)
	w.ended(s.ID, queued.Turn.ID)
	turns, err := w.Turns(t.Context(), s.ID, 0, 0)
	if err != nil || len(turns) != 2 {
		t.Errorf("%+v, %v", turns, err)
	}
}

// TestHostAnswers what needs no box, and nothing once its turn has ended.
func TestHostAnswers(t *testing.T) {
	p := newPuppet()
	var host runtime.Host
	p.box = func(_ context.Context, h runtime.Host) error {
		host = h
		if _, lost, err := h.Outcome(t.Context(), holdfast.ToolStarted{ToolUseID: "a", Call: "c"}); err != nil || !lost {
			t.Errorf("lost %v, %v", lost, err)
		}
		if evs, err := h.Keep(t.Context(), nil); err != nil || evs != nil {
			t.Errorf("an empty record gave %v, %v", evs, err)
		}
		if a, err := h.NewCall(); err != nil || a == "" {
			t.Errorf("call %q, %v", a, err)
		}
		h.At("nowhere")
		return nil
	}
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	w.ended(id, w.send(id, "box").ID)
	// What is left of the runtime after the turn's end can do nothing.
	before := len(w.log(id))
	if _, err := host.Box(t.Context()); err == nil {
		t.Error("a box for a turn that has ended")
	}
	if _, _, err := host.Outcome(t.Context(), holdfast.ToolStarted{Call: "c", Box: "s-x"}); err == nil {
		t.Error("an outcome for a turn that has ended")
	}
	if _, err := host.Keep(t.Context(), nil, notice("late")); err == nil {
		t.Error("a record of a turn that has ended")
	}
	host.Delta(holdfast.DeltaText, holdfast.TextDelta{Text: "late"})
	if n := len(w.log(id)); n != before {
		t.Errorf("%d events after the end", n-before)
	}
}

// TestRepeatedMessageIsOnlyAnswered: whatever became of the session since, the
// same key with the same message gets its first turn and moves nothing; with
// another message it is a conflict and moves nothing either.
func TestRepeatedMessageIsOnlyAnswered(t *testing.T) {
	w := newWorld(t, newPuppet(), nil)
	id := w.create(holdfast.CreateSession{})
	msg := holdfast.SendMessage{Text: "once", Key: "k"}
	first, err := w.Send(t.Context(), id, msg)
	if err != nil {
		t.Fatal(err)
	}
	w.ended(id, first.Turn.ID)
	again := func(state string) {
		t.Helper()
		before := w.dump(id)
		sent, err := w.Send(t.Context(), id, msg)
		if err != nil || !sent.Duplicate || sent.Turn.ID != first.Turn.ID || sent.Seq != first.Seq {
			t.Errorf("%s: %+v, %v", state, sent, err)
		}
		_, err = w.Send(t.Context(), id, holdfast.SendMessage{Text: "twice", Key: "k"})
		w.wantKind(err, holdfast.KindConflict)
		if after := w.dump(id); after != before {
			t.Errorf("%s: the repeated message left a trace\n%s", state, after)
		}
	}
	again("active")
	if _, err := w.Pause(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	again("paused")
	w.stop(true)
	w.start()
	again("paused, after a restart")
	if _, err := w.End(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	again("ended")
	_, err = w.Send(t.Context(), id, holdfast.SendMessage{Text: "new", Key: "new"})
	w.wantKind(err, holdfast.KindGone)
	if err := w.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	again("draining")
}

// TestSessionsThatAcceptNoMessage: a session that may start no turn refuses messages, and its resume, also for a command,
// with the reason. A message that it accepted before gets its first answer again, and a running turn goes on.
func TestSessionsThatAcceptNoMessage(t *testing.T) {
	var closed atomic.Bool
	p := newPuppet()
	w := newWorld(t, p, func(cfg *engine.Config) {
		cfg.Turns.Accepts = func(id holdfast.SessionID) error {
			if closed.Load() {
				return holdfast.Errorf(holdfast.KindConflict, "test", "%s is closed", id)
			}
			return nil
		}
	})
	id := w.create(holdfast.CreateSession{})
	first := w.sendAs(id, holdfast.SendMessage{Text: "wait", Key: "k"})
	p.wait(t)
	closed.Store(true)
	for _, mode := range []string{"queue", "steer", "interrupt"} {
		_, err := w.Send(t.Context(), id, holdfast.SendMessage{Text: "x", Mode: mode})
		w.wantKind(err, holdfast.KindConflict)
	}
	if again, err := w.Send(t.Context(), id, holdfast.SendMessage{Text: "wait", Key: "k"}); err != nil || !again.Duplicate {
		t.Errorf("again = %+v, %v", again, err)
	}
	close(p.release)
	if got := w.ended(id, first.ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("turn = %+v", got)
	}
	if _, err := w.Pause(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	_, err := w.Send(t.Context(), id, holdfast.SendMessage{Text: "x"})
	w.wantKind(err, holdfast.KindConflict)
	_, err = w.Resume(t.Context(), id, holdfast.ResumeSession{})
	w.wantKind(err, holdfast.KindConflict)
	_, err = w.Exec(t.Context(), id, holdfast.ExecRequest{Command: "true"}, nil, nil)
	w.wantKind(err, holdfast.KindConflict)
	if s, err := w.Session(t.Context(), id); err != nil || s.Status != holdfast.StatusPaused {
		t.Errorf("the session is %+v, %v", s, err)
	}
	closed.Store(false)
	next := w.send(id, "y")
	if got := w.ended(id, next.ID); got.Status != holdfast.TurnCompleted || got.Number != 2 {
		t.Errorf("turn = %+v", got)
	}
}

// TestRepeatedInterrupt: a message of mode interrupt whose server was killed before it cancelled the running turn interrupts
// that turn when it is repeated, also at the session's limit on turns. Further repeats, also of a message that was queued
// behind, interrupt no turn that began later.
func TestRepeatedInterrupt(t *testing.T) {
	for _, budget := range []*holdfast.Budget{nil, {Turns: 3}} {
		t.Run(fmt.Sprintf("budget %v", budget != nil), func(t *testing.T) {
			p := newPuppet()
			p.box = func(ctx context.Context, _ runtime.Host) error {
				<-p.release
				return context.Cause(ctx)
			}
			w := newWorld(t, p, nil)
			id := w.create(holdfast.CreateSession{Budget: budget})
			old := w.send(id, "wait")
			p.wait(t)
			msgs := []holdfast.SendMessage{{Text: "box", Mode: "interrupt", Key: "k"}, {Text: "last", Mode: "interrupt", Key: "l"}}
			var turns []holdfast.Turn
			// Without the end of the running turn, the log is as a kill before the cancel leaves it.
			w.refuseWhile(func(c journal.Encoded) bool { return has(c, holdfast.EventTurnInterrupted) })
			for _, msg := range msgs {
				turns = append(turns, w.sendAs(id, msg))
			}
			w.stop(false)
			w.acceptAll()
			w.start()
			p.wait(t)
			repeat := func(i int) {
				t.Helper()
				if again, err := w.Send(t.Context(), id, msgs[i]); err != nil || !again.Duplicate || again.Turn.ID != turns[i].ID {
					t.Errorf("again = %+v, %v", again, err)
				}
			}
			repeat(0)
			if got := w.ended(id, old.ID); got.Status != holdfast.TurnInterrupted {
				t.Errorf("the running turn is %+v", got)
			}
			p.wait(t)
			repeat(0)
			repeat(1)
			close(p.release)
			for i := range turns {
				if got := w.ended(id, turns[i].ID); got.Status != holdfast.TurnCompleted {
					t.Errorf("turn %d is %+v", i, got)
				}
			}
			repeat(0)
			w.sound(id)
		})
	}
}
