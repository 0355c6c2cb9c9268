package engine_test

import (
	"context"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// TestAMessageIsNeverLeftInAPausedSession: a message that is accepted while a pause
// ends the running turn resumes the session and runs.
func TestAMessageIsNeverLeftInAPausedSession(t *testing.T) {
	p := newPuppet()
	ending, letGo := make(chan struct{}), make(chan struct{})
	p.box = func(ctx context.Context, _ runtime.Host) error {
		<-ctx.Done()
		close(ending)
		<-letGo
		return context.Cause(ctx)
	}
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	w.send(id, "box")
	p.wait(t)
	paused := make(chan error, 1)
	var answer holdfast.Session
	go func() {
		var err error
		answer, err = w.Pause(t.Context(), id, holdfast.EndSession{Interrupt: true})
		paused <- err
	}()
	<-ending
	sent := w.send(id, "hi")
	if sent.Status != holdfast.TurnQueued {
		t.Errorf("the message is %s: it did not meet the pause", sent.Status)
	}
	close(letGo)
	if err := <-paused; err != nil {
		t.Fatal(err)
	}
	if answer.Status != holdfast.StatusActive {
		t.Errorf("the pause answers %s for a session that a message resumed", answer.Status)
	}
	if got := w.ended(id, sent.ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("turn = %+v", got)
	}
}

// TestMessagesRacingAPauseRun: messages are sent from the moment on when a pause is
// ending the running turn, before, while and after it is recorded. Each that is taken
// runs, once, and a pause that says paused left the session so.
func TestMessagesRacingAPauseRun(t *testing.T) {
	p := newPuppet()
	p.box = func(ctx context.Context, _ runtime.Host) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	w := newWorld(t, p, nil)
	met := 0
	for round := range 60 {
		id := w.create(holdfast.CreateSession{})
		w.send(id, "box")
		p.wait(t)
		begun := make(chan struct{})
		w.whenCommitted([]holdfast.EventType{"turn.interrupted", "session.paused"}[round%2], func() { close(begun) })
		var wg sync.WaitGroup
		var answer holdfast.Session
		wg.Go(func() {
			var err error
			if answer, err = w.Pause(t.Context(), id, holdfast.EndSession{Interrupt: true}); err != nil {
				t.Error(err)
			}
		})
		sent := make([]holdfast.Sent, 1+round%3)
		for i := range sent {
			wg.Go(func() {
				<-begun
				var err error
				if sent[i], err = w.Send(t.Context(), id, holdfast.SendMessage{Text: "hi"}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		for _, s := range sent {
			if got := w.ended(id, s.Turn.ID); got.Status != holdfast.TurnCompleted || p.count(s.Turn.ID) != 1 {
				t.Errorf("round %d: %+v ran %d times\n%s", round, got, p.count(s.Turn.ID), w.dump(id))
			}
		}
		if answer.Status == holdfast.StatusActive {
			met++
		}
		if s, err := w.Session(t.Context(), id); err != nil || s.Status != holdfast.StatusActive {
			t.Errorf("round %d: the session is %s, %v", round, s.Status, err)
		}
		w.sound(id)
		for len(p.entered) > 0 {
			<-p.entered
		}
	}
	t.Logf("%d of 60 pauses met a message", met)
}
