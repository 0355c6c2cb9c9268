package engine_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/resume"
	"github.com/holdfast-run/holdfast/internal/stages"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// slow is a stage that takes as long as the test wants.
type slow struct {
	began chan stages.Settled
	end   chan error
}

func (s slow) Name() string { return "slow" }

func (s slow) After(_ context.Context, t stages.Settled) error {
	s.began <- t
	return <-s.end
}

// TestTurnsWaitForStages: a message that comes while a stage of the last turn runs is queued, and
// its turn starts when the stage has ended, even if that failed. A turn that runs in another
// session, and its messages, do not wait. The end of the server waits for the stage.
func TestTurnsWaitForStages(t *testing.T) {
	p := newPuppet()
	stage := slow{began: make(chan stages.Settled), end: make(chan error)}
	w := newWorld(t, p, func(c *engine.Config) { c.After = []stages.Stage{stage} })
	id, other := w.create(holdfast.CreateSession{}), w.create(holdfast.CreateSession{})
	first := w.send(id, "one")
	p.wait(t)
	settled := <-stage.began
	if got, err := w.Turn(t.Context(), id, first.ID); err != nil || got.Status != holdfast.TurnCompleted || settled.Turn != first.ID || settled.Box == "" || settled.Dir == "" {
		t.Errorf("%+v, %v, after %+v", got, err, settled)
	}
	second := w.send(id, "two")
	if second.Status != holdfast.TurnQueued || second.QueuePosition != 1 {
		t.Errorf("the next turn is %+v", second)
	}
	if beside := w.send(other, "wait"); beside.Status != holdfast.TurnRunning {
		t.Errorf("a turn of another session is %+v", beside)
	}
	if got := p.wait(t); got == second.ID {
		t.Error("a turn has started before the stage has ended")
	}
	stage.end <- errors.New("the disk is slow")
	if got := p.wait(t); got != second.ID {
		t.Errorf("turn %s has started, want %s", got, second.ID)
	}
	notices := datas[holdfast.Notice](w, id, holdfast.EventNotice)
	if len(notices) != 1 || notices[0].Code != "stage.failed" || notices[0].Text != "slow: the disk is slow" {
		t.Errorf("notices: %+v", notices)
	}
	<-stage.began
	close(p.release)
	drained := make(chan error, 1)
	go func() { drained <- w.Drain(t.Context()) }()
	stage.end <- nil
	<-stage.began
	select {
	case err := <-drained:
		t.Errorf("drained while a stage runs: %v", err)
	default:
	}
	stage.end <- nil
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

// quick is a stage that has nothing to do.
type quick struct{}

func (quick) Name() string                                { return "quick" }
func (quick) After(context.Context, stages.Settled) error { return nil }

// TestQuickStagesLoseNoTurn: turns that waited when a turn ended start, however soon its stages end.
func TestQuickStagesLoseNoTurn(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, func(c *engine.Config) { c.After = []stages.Stage{quick{}} })
	for range 200 {
		id := w.create(holdfast.CreateSession{})
		w.send(id, "wait")
		p.wait(t)
		second := w.send(id, "two")
		p.release <- struct{}{}
		if got := p.wait(t); got != second.ID {
			t.Fatalf("turn %s has started, want %s", got, second.ID)
		}
		w.ended(id, second.ID)
	}
}

// slowSnapshots takes snapshots that last until the test ends them.
type slowSnapshots struct {
	resume.NoSnapshots
	began chan holdfast.CheckpointReason
	end   chan struct{}
}

func (s slowSnapshots) Take(_ context.Context, _ journal.Row, why holdfast.CheckpointReason) {
	s.began <- why
	<-s.end
}

// TestPauseWaitsForItsSnapshot: whoever reads that a session is paused may remove its files.
func TestPauseWaitsForItsSnapshot(t *testing.T) {
	s := slowSnapshots{began: make(chan holdfast.CheckpointReason), end: make(chan struct{})}
	w := newWorld(t, newPuppet(), func(c *engine.Config) { c.Snapshots = s })
	id := w.create(holdfast.CreateSession{})
	paused := make(chan error, 1)
	go func() {
		_, err := w.Pause(t.Context(), id, holdfast.EndSession{})
		paused <- err
	}()
	if why := <-s.began; why != holdfast.CheckpointStop {
		t.Errorf("a snapshot with the reason %s", why)
	}
	defer close(s.end)
	testkit.Eventually(t, "the pause waits", func() bool {
		if len(paused) > 0 {
			t.Fatal("the pause was answered before its snapshot")
		}
		all := make([]byte, 1<<20)
		return strings.Contains(string(all[:runtime.Stack(all, true)]), "stages.(*Stages).Wait(")
	})
	s.end <- struct{}{}
	if err := <-paused; err != nil {
		t.Error(err)
	}
}

// TestBetweenOfAGoneSession: whoever waits for work on a session that was removed meanwhile does not wait for ever.
func TestBetweenOfAGoneSession(t *testing.T) {
	w := newWorld(t, newPuppet(), nil)
	done := w.Branching().Between(holdfast.SessionID(newUUID(t)), func(context.Context, journal.Row) { t.Error("the work ran") })
	if done == nil {
		t.Fatal("no turn runs")
	}
	<-done
}

// TestSettleWaitsForSnapshots: whoever needs the files of a session as they are waits for a snapshot that outlasts a pause.
func TestSettleWaitsForSnapshots(t *testing.T) {
	s := slowSnapshots{began: make(chan holdfast.CheckpointReason), end: make(chan struct{})}
	w := newWorld(t, newPuppet(), func(c *engine.Config) { c.Snapshots = s })
	id := w.create(holdfast.CreateSession{})
	ctx, cancel := context.WithCancel(t.Context())
	paused := make(chan error, 1)
	go func() {
		_, err := w.Pause(ctx, id, holdfast.EndSession{})
		paused <- err
	}()
	<-s.began
	cancel()
	if err := <-paused; err != nil {
		t.Error(err)
	}
	if err := w.Settle(ctx, id); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that was ended: %v", err)
	}
	settled := make(chan error, 1)
	go func() { settled <- w.Settle(t.Context(), id) }()
	testkit.Eventually(t, "the wait begins", func() bool {
		if len(settled) > 0 {
			t.Fatal("the session is settled before its snapshot is taken")
		}
		all := make([]byte, 1<<20)
		return strings.Contains(string(all[:runtime.Stack(all, true)]), "stages.(*Stages).Wait(")
	})
	close(s.end)
	if err := <-settled; err != nil {
		t.Error(err)
	}
}
