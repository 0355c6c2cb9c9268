package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

func notice(text string) journal.Draft {
	return journal.Draft{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: "test", Text: text}}
}

// clock stands still unless it is moved. It counts how often it is asked, which
// is once per look of the watchdog.
type clock struct {
	start time.Time
	by    atomic.Int64
	asked atomic.Int64
}

func newClock() *clock { return &clock{start: time.Now()} }

func (c *clock) now() time.Time {
	c.asked.Add(1)
	return c.start.Add(time.Duration(c.by.Load()))
}

func (c *clock) move(d time.Duration) { c.by.Add(int64(d)) }

// looked waits until the watchdog has looked a few times.
func (c *clock) looked(t testing.TB) {
	t.Helper()
	from := c.asked.Load()
	until(t, func() bool { return c.asked.Load() > from+3 })
}

const silence, grace = 200 * time.Millisecond, time.Minute

func watched(t *testing.T, p *puppet) (*world, *clock) {
	c := newClock()
	return newWorld(t, p, func(cfg *engine.Config) {
		cfg.Clock, cfg.Turns.Silence, cfg.Turns.KillGrace = c.now, silence, grace
	}), c
}

func TestWatchdogLeavesATurnThatShowsLife(t *testing.T) {
	p := newPuppet()
	beat, seen := make(chan string), make(chan struct{})
	p.box = func(ctx context.Context, h runtime.Host) error {
		for {
			select {
			case how := <-beat:
				switch how {
				case "delta":
					h.Delta(holdfast.DeltaText, holdfast.TextDelta{Text: "."})
				case "record":
					if _, err := h.Keep(ctx, nil, notice("alive")); err != nil {
						return err
					}
				default:
					return nil
				}
				seen <- struct{}{}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	w, c := watched(t, p)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "box")
	p.wait(t)
	for _, how := range []string{"delta", "record", "delta", "record"} {
		c.move(silence * 9 / 10)
		c.looked(t)
		beat <- how
		<-seen
	}
	beat <- "end"
	if got := w.ended(id, turn.ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("turn = %+v", got)
	}
}

func TestWatchdogCancelsFirst(t *testing.T) {
	p := newPuppet()
	w, c := watched(t, p)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "wait")
	p.wait(t)
	c.move(silence)
	got := w.ended(id, turn.ID)
	if got.Status != holdfast.TurnFailed || !strings.Contains(got.Error, "no progress") {
		t.Errorf("turn = %+v", got)
	}
	end := datas[holdfast.TurnEnded](w, id, holdfast.EventTurnFailed)
	if len(end) != 1 || end[0].Kind != holdfast.KindUnavailable || !strings.Contains(end[0].Hint, "turn_silence") {
		t.Errorf("turn.failed = %+v", end)
	}
	if s, _ := w.Session(t.Context(), id); s.Status != holdfast.StatusActive {
		t.Errorf("session is %s", s.Status)
	}
}

// TestWatchdogStopsTheBox of a turn that does not heed its cancellation.
func TestWatchdogStopsTheBox(t *testing.T) {
	p := newPuppet()
	entered := make(chan struct{})
	p.box = func(ctx context.Context, h runtime.Host) error {
		box, err := h.Box(ctx)
		if err != nil {
			return err
		}
		close(entered)
		<-box.Done() // deaf to ctx
		return holdfast.Errorf(holdfast.KindUnavailable, "tool", "the box is gone")
	}
	c := newClock()
	m := newMachine(t, func(m *machine) {
		m.rt = p
		m.set = func(cfg *engine.Config) { cfg.Clock, cfg.Turns.Silence, cfg.Turns.KillGrace = c.now, silence, grace }
	})
	id := m.create(holdfast.CreateSession{})
	turn := m.send(id, "box")
	<-entered
	c.move(silence)
	c.looked(t)
	if got, _ := m.Turn(t.Context(), id, turn.ID); got.Status != holdfast.TurnRunning {
		t.Errorf("the turn had no time to heed: %+v", got)
	}
	c.move(grace)
	if got := m.ended(id, turn.ID); got.Status != holdfast.TurnFailed || !strings.Contains(got.Error, "no progress") {
		t.Errorf("turn = %+v", got)
	}
	stopped := datas[holdfast.BoxEnded](m.world, id, "box.stopped")
	if len(stopped) != 1 || !strings.Contains(stopped[0].Reason, "stuck") {
		t.Errorf("box.stopped = %+v", stopped)
	}
	if s, _ := m.Session(t.Context(), id); s.Status != holdfast.StatusActive {
		t.Errorf("session is %s", s.Status)
	}
}

// TestWatchdogSettlesWithoutTheRuntime when nothing else helps; what the runtime
// does later counts for nothing.
func TestWatchdogSettlesWithoutTheRuntime(t *testing.T) {
	p := newPuppet()
	w, c := watched(t, p)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "deaf")
	p.wait(t)
	queued := w.send(id, "two")
	c.move(silence)
	until(t, func() bool {
		c.move(grace)
		got, err := w.Turn(t.Context(), id, turn.ID)
		return err == nil && got.Status == holdfast.TurnFailed
	})
	if got := w.ended(id, queued.ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("queued = %+v", got)
	}
	before := w.types(id)
	close(p.release)
	if err := w.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := w.types(id); len(after) != len(before) {
		t.Errorf("the runtime of a settled turn wrote %v", after[len(before):])
	}
	w.sound(id)
}

// TestWatchdogEndsAnInterruptThatIsNotHeeded, as interrupted.
func TestWatchdogEndsAnInterruptThatIsNotHeeded(t *testing.T) {
	p := newPuppet()
	asked := make(chan struct{})
	p.box = func(ctx context.Context, _ runtime.Host) error {
		<-ctx.Done()
		close(asked)
		<-p.release // ignores ctx
		return nil
	}
	w, c := watched(t, p)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "box")
	p.wait(t)
	ended := make(chan error, 1)
	go func() {
		_, err := w.Interrupt(t.Context(), id)
		ended <- err
	}()
	<-asked // until then the clock stands still: the turn does not count as silent
	until(t, func() bool {
		c.move(grace)
		got, err := w.Turn(t.Context(), id, turn.ID)
		return err == nil && got.Status.Terminal()
	})
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := w.ended(id, turn.ID); got.Status != holdfast.TurnInterrupted {
		t.Errorf("turn = %+v", got)
	}
	close(p.release)
	w.sound(id)
}

// TestWatchdogTriesAgain when the end of a stuck turn cannot be written.
func TestWatchdogTriesAgain(t *testing.T) {
	p := newPuppet()
	w, c := watched(t, p)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "deaf")
	p.wait(t)
	w.refuseWhile(everything)
	c.move(silence)
	until(t, func() bool { c.move(grace); return w.refused.Load() > 1 })
	w.acceptAll()
	until(t, func() bool {
		c.move(grace)
		got, err := w.Turn(t.Context(), id, turn.ID)
		return err == nil && got.Status == holdfast.TurnFailed
	})
	close(p.release)
	w.sound(id)
}

// TestWatchdogSparesATurnThatHasReturned: what is late is the store, and the
// answer that the runtime gave still counts.
func TestWatchdogSparesATurnThatHasReturned(t *testing.T) {
	p := newPuppet()
	w, c := watched(t, p)
	id := w.create(holdfast.CreateSession{})
	w.refuseWhile(func(c journal.Encoded) bool { return has(c, holdfast.EventTurnCompleted) })
	turn := w.send(id, "hello")
	until(t, func() bool { return w.refused.Load() > 0 })
	for range 4 {
		c.move(silence + grace)
		c.looked(t)
	}
	w.acceptAll()
	if got := w.ended(id, turn.ID); got.Status != holdfast.TurnCompleted || got.Result != "re: hello" {
		t.Errorf("turn = %+v", got)
	}
}

// TestEndingATurnDoesNotWaitForItsBox: a start that hangs holds up the turn
// alone, not the end of it.
func TestEndingATurnDoesNotWaitForItsBox(t *testing.T) {
	p := newPuppet()
	entered, let := make(chan struct{}), make(chan struct{})
	c := newClock()
	p.box = func(_ context.Context, h runtime.Host) error {
		_, err := h.Box(context.WithoutCancel(t.Context())) // deaf to its turn
		return err
	}
	m := newMachine(t, func(m *machine) {
		m.rt = p
		m.agents = slowAgents{entered: entered, let: let}
		m.set = func(cfg *engine.Config) { cfg.Clock, cfg.Turns.Silence, cfg.Turns.KillGrace = c.now, silence, grace }
	})
	id := m.create(holdfast.CreateSession{})
	turn := m.send(id, "box")
	<-entered
	c.move(silence)
	until(t, func() bool {
		c.move(grace)
		got, err := m.Turn(t.Context(), id, turn.ID)
		return err == nil && got.Status == holdfast.TurnFailed
	})
	close(let)
	if err := m.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	// The box that came too late is nobody's: it is not held.
	list, err := m.Containers(t.Context())
	if err != nil || len(list) != 1 || list[0].Calls != 0 {
		t.Errorf("containers = %+v, %v", list, err)
	}
}

// slowAgents hands out the files only when it is let.
type slowAgents struct {
	oneAgent
	entered, let chan struct{}
}

func (a slowAgents) Files(ctx context.Context, v holdfast.VersionID) ([]rooted.File, error) {
	close(a.entered)
	<-a.let
	return a.oneAgent.Files(ctx, v)
}
