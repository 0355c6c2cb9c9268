// Package watchdog ends turns that hang: those without progress, and those that do not end although
// they were cancelled. It first cancels a turn, then stops the turn's box, and finally settles the
// turn without its runtime, so that the session is usable in any case.
//
// The engine runs one Watchdog. It imports no package of the server. Invariant: each step waits
// until the previous one had its grace time. A turn that waits for a person or for its provider is
// left alone, unless it was cancelled.
package watchdog

import (
	"context"
	"log/slog"
	"time"
)

// Turn is a running turn. Values must be comparable, and equal for the same turn.
type Turn interface {
	// Done is closed when the turn has ended.
	Done() <-chan struct{}
	// Cancelled reports whether the turn was cancelled. Waits reports whether it waits for a person
	// or for its provider. Progress returns the time of its last activity.
	Cancelled() bool
	Waits() bool
	Progress() time.Time
	// Cancel asks the turn to end. StopBox stops its box. Settle ends it without its runtime.
	Cancel()
	StopBox(ctx context.Context) error
	Settle() error
}

// Config configures a Watchdog. All fields must be set.
type Config struct {
	// Turns returns the running turns.
	Turns func() []Turn
	// Silence is how long a turn may make no progress; Grace is how long each step against it may
	// take before the next.
	Silence, Grace time.Duration
	// Go runs a function in the background; it returns false if the server is closing.
	Go    func(func()) bool
	Clock func() time.Time
	Log   *slog.Logger
}

// Watchdog watches the turns of a server.
type Watchdog struct {
	cfg   Config
	stuck map[Turn]*stuck
}

// New returns a Watchdog; Run starts it.
func New(cfg Config) *Watchdog { return &Watchdog{cfg: cfg, stuck: map[Turn]*stuck{}} }

// stuck records the last step that the watchdog took against a turn, and when.
type stuck struct {
	stage int
	since time.Time
}

// Run watches until ctx ends.
func (w *Watchdog) Run(ctx context.Context) {
	tick := time.NewTicker(min(max(w.cfg.Silence/20, 10*time.Millisecond), 10*time.Second))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.look(ctx)
		}
	}
}

// look checks every running turn once.
func (w *Watchdog) look(ctx context.Context) {
	now := w.cfg.Clock()
	for _, t := range w.cfg.Turns() {
		s := w.stuck[t]
		if s == nil {
			switch {
			case t.Cancelled():
				// The turn was cancelled already: its grace time begins now.
				s = &stuck{stage: 1, since: now}
			case t.Waits() || now.Sub(t.Progress()) < w.cfg.Silence:
				continue
			default:
				s = &stuck{}
			}
			w.stuck[t] = s
		}
		w.press(ctx, t, s, now)
	}
	for t := range w.stuck {
		select {
		case <-t.Done():
			delete(w.stuck, t)
		default:
		}
	}
}

// press takes the next step against a stuck turn if the time Grace has passed since the previous step.
func (w *Watchdog) press(ctx context.Context, t Turn, s *stuck, now time.Time) {
	if s.stage > 0 && now.Sub(s.since) < w.cfg.Grace {
		return
	}
	s.stage++
	s.since = now
	switch s.stage {
	case 1:
		t.Cancel()
	case 2:
		// Run in its own goroutine, so that other stuck turns do not wait for this box.
		w.cfg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, w.cfg.Grace)
			defer cancel()
			if err := t.StopBox(ctx); err != nil {
				w.cfg.Log.WarnContext(ctx, "the box of a turn that makes no progress could not be stopped", "error", err)
			}
		})
	default:
		if err := t.Settle(); err != nil {
			w.cfg.Log.ErrorContext(ctx, "a turn that makes no progress could not be ended", "error", err)
		}
	}
}
