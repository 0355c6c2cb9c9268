package engine_test

import (
	"context"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// TestAMessageIsNeverLeftInAPausedSession: a message that is taken while a pause ends
// the running turn resumes the session and runs.
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
	go func() {
		_, err := w.Pause(t.Context(), id, holdfast.EndSession{Interrupt: true})
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
	if got := w.ended(id, sent.ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("turn = %+v", got)
	}
}
