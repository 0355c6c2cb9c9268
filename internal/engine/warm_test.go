package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// warmer is a runtime whose agents are started in a box, one after the other as the
// test lets them.
type warmer struct {
	*puppet
	warmed chan holdfast.SessionID
	let    chan error
}

func (w *warmer) Warm(ctx context.Context, t runtime.Turn, host runtime.Host) error {
	if _, err := host.Box(ctx); err != nil {
		return err
	}
	w.warmed <- t.Session.ID
	select {
	case err := <-w.let:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// An agent is started with its session, a turn waits until it is there, or is not, and
// of too many that wait the first one's box is stopped.
func TestAgentsAreStartedAhead(t *testing.T) {
	rt := &warmer{puppet: newPuppet(), warmed: make(chan holdfast.SessionID, 10), let: make(chan error)}
	w := newMachine(t, func(m *machine) {
		m.world.rt, m.set = rt, func(c *engine.Config) { c.Turns.Warm = 1 }
	})
	stops := func(id holdfast.SessionID) int {
		n := 0
		for _, typ := range w.types(id) {
			if typ == holdfast.EventBoxStopped {
				n++
			}
		}
		return n
	}
	first := w.create(holdfast.CreateSession{})
	if got := <-rt.warmed; got != first {
		t.Fatalf("%s was warmed", got)
	}
	rt.let <- nil
	second := w.create(holdfast.CreateSession{})
	<-rt.warmed
	turn := w.send(second, "hello")
	if n := rt.count(turn.ID); n != 0 {
		t.Error("the turn did not wait for its agent")
	}
	rt.let <- errors.New("it could not be started")
	w.ended(second, turn.ID)
	if stops(first) != 0 || stops(second) != 0 {
		t.Error("a box was stopped for an agent that is not there")
	}
	third := w.create(holdfast.CreateSession{})
	<-rt.warmed
	rt.let <- nil
	if !eventually(func() bool { return stops(first) == 1 }) {
		t.Error("the first box was not stopped")
	}
	if stops(third) != 0 {
		t.Error("the newest one was stopped")
	}
	// One that has its turn waits no more.
	w.ended(third, w.send(third, "hello").ID)
	fourth := w.create(holdfast.CreateSession{})
	<-rt.warmed
	rt.let <- nil
	w.ended(fourth, w.send(fourth, "hello").ID)
	if stops(third) != 0 {
		t.Error("a session that had its turn was stopped")
	}
}
