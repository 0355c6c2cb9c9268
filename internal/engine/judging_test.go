package engine_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/policy"
)

// crash ends the engine and leaves the disk as a crash does: with the marks of calls
// under judgement.
func (w *world) crash() {
	w.t.Helper()
	file := filepath.Join(w.dir, "sessions", "judging")
	marks, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	w.stop(false)
	if err := os.WriteFile(file, marks, 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.start()
}

// hanging is a world whose judging hangs while stuck is set; each judgement that hangs
// sends to entered.
func hanging(t *testing.T, d *decider) (w *world, stuck *atomic.Bool, entered chan struct{}) {
	stuck, entered = new(atomic.Bool), make(chan struct{})
	p, err := policy.New(policy.Config{Callback: policy.Func(func(ctx context.Context, _ policy.Request) (policy.Decision, error) {
		if !stuck.Load() {
			return policy.Allow(), nil
		}
		entered <- struct{}{}
		<-ctx.Done()
		return policy.Decision{}, context.Cause(ctx)
	})})
	if err != nil {
		t.Fatal(err)
	}
	return newWorld(t, d, func(c *engine.Config) { c.Policy = p }), stuck, entered
}

// TestACallThatTheServerDiesOfIsDenied: two unclean ends in a row while a call was
// being judged are enough. Other calls of the turn go on (HZ-19).
func TestACallThatTheServerDiesOfIsDenied(t *testing.T) {
	d := newDecider("Bash", `{"command":"poison"}`)
	w, stuck, entered := hanging(t, d)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "go")
	stuck.Store(true)
	for range 2 {
		d.steps <- struct{}{}
		<-entered
		w.crash()
	}
	// It still hangs: judging it would never return.
	got := d.decide()
	if got.Verdict != policy.Denied || got.By != "crash guard" || !strings.Contains(got.Reason, "two times in a row") {
		t.Errorf("%+v", got)
	}
	stuck.Store(false)
	d.ask.Input = json.RawMessage(`{"command":"harmless"}`)
	if got := d.decide(); got.Verdict != policy.Allowed {
		t.Errorf("another call: %+v", got)
	}
	close(d.steps)
	if end := w.ended(id, turn.ID); end.Status != holdfast.TurnCompleted {
		t.Errorf("%+v", end)
	}
}

// TestOneUncleanEndIsNotEnough: nor are two with a clean end between them.
func TestOneUncleanEndIsNotEnough(t *testing.T) {
	d := newDecider("Bash", `{"command":"slow"}`)
	w, stuck, entered := hanging(t, d)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "go")
	stuck.Store(true)
	for _, clean := range []bool{false, true, false} {
		d.steps <- struct{}{}
		<-entered
		if clean {
			w.restart()
		} else {
			w.crash()
		}
	}
	stuck.Store(false)
	if got := d.decide(); got.Verdict != policy.Allowed {
		t.Errorf("%+v", got)
	}
	close(d.steps)
	w.ended(id, turn.ID)
}

// TestAnOpenQuestionSurvivesManyCrashes: a call that waits for a person is not being
// judged.
func TestAnOpenQuestionSurvivesManyCrashes(t *testing.T) {
	m := newMachine(t, nil)
	id := m.asks()
	waits := m.when("asked", func() {})
	turn := m.send(id, script(bash(touch), say("done")))
	m.reached(waits)
	a := m.pending(id)
	for range 4 {
		waits = m.when("asked", func() {})
		m.crash()
		m.reached(waits)
		if now := m.pending(id); now.ID != a.ID {
			t.Fatalf("another question: %+v", now)
		}
	}
	m.answer(a, allow)
	if end := m.ended(id, turn.ID); end.Status != holdfast.TurnCompleted {
		t.Errorf("%+v", end)
	}
	if n := m.count(id, holdfast.EventToolDenied); n != 0 {
		t.Errorf("%d denials", n)
	}
}
