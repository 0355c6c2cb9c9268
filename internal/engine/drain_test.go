package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/journal"
)

func TestDrainDoesNotWaitForWhatCannotBeWritten(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "wait")
	p.wait(t)
	w.refuseWhile(everything)
	close(p.release)
	until(t, func() bool { return w.refused.Load() > 1 })
	if err := w.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	// Nobody who waits for the turn waits for ever.
	_, err := w.Interrupt(t.Context(), id)
	w.wantKind(err, holdfast.KindUnavailable)
	_, err = w.Pause(t.Context(), id, holdfast.EndSession{Interrupt: true})
	w.wantKind(err, holdfast.KindUnavailable)
	w.stop(false)
	w.acceptAll()
	w.start()
	if got := w.ended(id, turn.ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("turn = %+v", got)
	}
}

func TestDrainThatIsTooShort(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "wait")
	queued := w.send(id, "two")
	p.wait(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.wantKind(w.Drain(ctx), holdfast.KindUnavailable)
	// The running turn ends, the waiting one is left to the next start.
	close(p.release)
	if got := w.ended(id, turn.ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("turn = %+v", got)
	}
	if err := w.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if got, err := w.Turn(t.Context(), id, queued.ID); err != nil || got.Status != holdfast.TurnQueued || got.QueuePosition != 1 {
		t.Errorf("queued = %+v, %v", got, err)
	}
	w.restart()
	if got := w.ended(id, queued.ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("queued = %+v", got)
	}
	w.sound(id)
}

// TestCloseDoesNotWaitForADeafRuntime for longer than it may.
func TestCloseDoesNotWaitForADeafRuntime(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "deaf")
	p.wait(t)
	before := len(w.log(id))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	w.wantKind(w.Close(ctx, false), holdfast.KindUnavailable)
	close(p.release)
	if err := w.Close(t.Context(), false); err != nil {
		t.Error(err)
	}
	if got := len(w.log(id)); got != before {
		t.Errorf("a turn that was let go of wrote %d events\n%s", got-before, w.dump(id))
	}
	w.restart()
	if got := w.ended(id, turn.ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("turn = %+v", got)
	}
}

// TestSendsWhileTheServerCloses: whatever was acknowledged is there after the
// next start, and has exactly one end.
func TestSendsWhileTheServerCloses(t *testing.T) {
	m := newMachine(t, nil)
	var acked atomic.Int64
	var stop atomic.Bool
	ids := make([]holdfast.SessionID, 4)
	turns := make([][]holdfast.TurnID, len(ids))
	done := make(chan struct{})
	for i := range ids {
		ids[i] = m.create(holdfast.CreateSession{})
		go func() {
			defer func() { done <- struct{}{} }()
			e := m.Engine
			for !stop.Load() {
				sent, err := e.Send(context.WithoutCancel(t.Context()), ids[i], holdfast.SendMessage{Text: script(bash("echo line >> lines"), say("ok"))})
				if err != nil {
					if !holdfast.IsKind(err, holdfast.KindUnavailable) {
						t.Error(err)
					}
					return
				}
				turns[i] = append(turns[i], sent.Turn.ID)
				acked.Add(1)
			}
		}()
	}
	until(t, func() bool { return acked.Load() > 40 })
	// No drain: as sudden as Close can be.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := m.Close(ctx, false); err != nil {
		t.Error(err)
	}
	stop.Store(true)
	for range ids {
		<-done
	}
	m.restart()
	for i, id := range ids {
		for _, turn := range turns[i] {
			if got := m.ended(id, turn); got.Status != holdfast.TurnCompleted {
				t.Errorf("turn = %+v", got)
			}
		}
		if n := m.lines(id, "lines"); n != len(turns[i]) {
			t.Errorf("%d lines for %d acknowledged turns", n, len(turns[i]))
		}
		m.sound(id)
	}
}

// TestPauseKeepsWhatWaits: only the running turn is interrupted, the others
// neither start nor end while the session is paused, and come first afterwards.
func TestPauseKeepsWhatWaits(t *testing.T) {
	for _, resume := range []string{"resume", "message", "exec"} {
		t.Run(resume, func(t *testing.T) {
			m := newMachine(t, nil)
			id := m.create(holdfast.CreateSession{})
			running := m.send(id, script(bash(gated), say("ok")))
			second := m.send(id, script(bash("echo 2 >> order"), say("ok")))
			third := m.send(id, script(bash("echo 3 >> order"), say("ok")))
			m.appears(id, "begun")
			if _, err := m.Pause(t.Context(), id, holdfast.EndSession{Interrupt: true}); err != nil {
				t.Fatal(err)
			}
			if got := m.ended(id, running.ID); got.Status != holdfast.TurnInterrupted {
				t.Errorf("running = %+v", got)
			}
			for i, q := range []holdfast.Turn{second, third} {
				if got, err := m.Turn(t.Context(), id, q.ID); err != nil || got.Status != holdfast.TurnQueued || got.QueuePosition != i+1 {
					t.Errorf("waiting turn = %+v, %v", got, err)
				}
			}
			// A restart does not start them either.
			m.restart()
			if s, _ := m.Session(t.Context(), id); s.Status != holdfast.StatusPaused {
				t.Errorf("session is %s", s.Status)
			}
			var last holdfast.Turn
			switch resume {
			case "resume":
				if _, err := m.Resume(t.Context(), id, holdfast.ResumeSession{}); err != nil {
					t.Fatal(err)
				}
				last = m.send(id, script(bash("echo 4 >> order"), say("ok")))
			case "message":
				last = m.send(id, script(bash("echo 4 >> order"), say("ok")))
				if last.Status != holdfast.TurnQueued {
					t.Errorf("the message overtook those that waited: %+v", last)
				}
			case "exec":
				m.exec(id, "true")
				last = m.send(id, script(bash("echo 4 >> order"), say("ok")))
			}
			for _, turn := range []holdfast.Turn{second, third, last} {
				if got := m.ended(id, turn.ID); got.Status != holdfast.TurnCompleted {
					t.Errorf("turn = %+v", got)
				}
			}
			if got := m.file(id, "order"); got != "2\n3\n4\n" {
				t.Errorf("order %q", got)
			}
			m.sound(id)
		})
	}
}

// TestEndTakesWhatWaits: waiting turns are interrupted without having started.
func TestEndTakesWhatWaits(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.send(id, script(bash(gated), say("ok")))
	waiting := m.send(id, script(bash("echo line >> lines"), say("ok")))
	m.appears(id, "begun")
	if _, err := m.End(t.Context(), id, holdfast.EndSession{Interrupt: true}); err != nil {
		t.Fatal(err)
	}
	got := m.ended(id, waiting.ID)
	if got.Status != holdfast.TurnInterrupted || got.StartedAt != nil || m.lines(id, "lines") != 0 {
		t.Errorf("waiting = %+v", got)
	}
	m.sound(id)
}

// TestPauseThatGivesUp: its caller goes away while it waits; the turn ends all
// the same, the session stays active, and what waited starts.
func TestPauseThatGivesUp(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	w.send(id, "deaf")
	p.wait(t)
	queued := w.send(id, "two")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := w.Pause(ctx, id, holdfast.EndSession{Interrupt: true})
		ended <- err
	}()
	// Sent meanwhile: it waits, whether it meets the turn or the pause.
	third := w.send(id, "three")
	if third.Status != holdfast.TurnQueued {
		t.Errorf("third = %+v", third)
	}
	cancel()
	w.wantKind(<-ended, holdfast.KindUnavailable)
	close(p.release)
	for _, q := range []holdfast.Turn{queued, third} {
		if got := w.ended(id, q.ID); got.Status != holdfast.TurnCompleted {
			t.Errorf("waiting = %+v", got)
		}
	}
	if s, _ := w.Session(t.Context(), id); s.Status != holdfast.StatusActive {
		t.Errorf("session is %s", s.Status)
	}
	w.sound(id)
}

// TestDrainWaitsForHooksBehindATurn: a hook that follows the end of a turn is not cut off
// by an orderly end of the server.
func TestDrainWaitsForHooksBehindATurn(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	e := &ear{answer: func(hook.Input) *hook.Output {
		close(began)
		<-release
		return &hook.Output{Message: "heard"}
	}}
	m := listening(t, e, nil, hook.Stop)
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(say("done")))
	<-began
	drained := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { drained <- m.Drain(ctx) }()
	until(t, func() bool { return m.Health(t.Context()).Status == "draining" })
	select {
	case err := <-drained:
		t.Fatalf("drained while a hook runs: %v", err)
	default:
	}
	cancel()
	m.wantKind(<-drained, holdfast.KindUnavailable)
	close(release)
	if err := m.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	m.stop(false)
	m.start()
	var said []string
	for _, ev := range m.log(id) {
		var ran holdfast.HookRan
		if ev.Type == holdfast.EventHookRan && ev.Decode(&ran) == nil {
			said = append(said, ran.Outcome+" "+ran.Message)
		}
	}
	if len(said) != 1 || said[0] != "ok heard" {
		t.Errorf("the hook came to %q", said)
	}
}

// TestATurnThatIsLetGoHasNoEnd: the runtime has failed, and before its turn is settled the engine
// lets go of it. The next start runs the turn again; it has not ended.
func TestATurnThatIsLetGoHasNoEnd(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "wait")
	p.wait(t)
	// A message that joins the turn holds the session's lock for as long as its commit takes.
	held, let := make(chan struct{}), make(chan struct{})
	refuse := func(c journal.Encoded) error {
		if has(c, holdfast.EventMessageUser) {
			close(held)
			<-let
		}
		return nil
	}
	w.refuse.Store(&refuse)
	steered := make(chan error, 1)
	go func() {
		_, err := w.Engine.Send(context.WithoutCancel(t.Context()), id, holdfast.SendMessage{Text: "more", Mode: string(holdfast.SendSteer)})
		steered <- err
	}()
	<-held
	p.release <- struct{}{} // the runtime returns
	settling := func() bool { return strings.Contains(stackOf(true), "engine.(*turns).settle(") }
	until(t, settling)
	stopped := make(chan struct{})
	go func() { defer close(stopped); w.stop(false) }()
	until(t, func() bool { return strings.Contains(stackOf(true), "lifetime.(*Life).Wait(") }) // the engine has let go
	close(let)
	if err := <-steered; err != nil {
		t.Error(err)
	}
	<-stopped
	w.acceptAll()
	w.start()
	p.wait(t)
	close(p.release)
	if got := w.ended(id, turn.ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("turn = %+v\n%s", got, w.dump(id))
	}
}
