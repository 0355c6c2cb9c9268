// Package watchdog ends turns that hang: those that show no progress, and those that do not end
// although they were cancelled. First it cancels a turn, then it stops the turn's box, and in the end
// it settles the turn without its runtime, so that the session is usable in any case.
//
// The engine runs the one Watchdog of a server. It imports nothing of the server. Invariant: each
// step waits until the one before had its time, and a turn that waits for a person or for its
// provider is left alone.
package watchdog

import (
	"context"
	"log/slog"
	"time"
)

// Turn is a turn under way. Its values must be comparable: the same turn is the same value.
type Turn interface {
	// Done is closed when the turn has ended.
	Done() <-chan struct{}
	// Cancelled reports whether the turn was told to end. Waits reports whether it waits for a person
	// or for its provider. Progress is when it last showed life.
	Cancelled() bool
	Waits() bool
	Progress() time.Time
	// Cancel tells the turn to end. StopBox stops its box. Settle ends it without its runtime.
	Cancel()
	StopBox(ctx context.Context) error
	Settle() error
}

// Config configures a Watchdog. All fields must be set.
type Config struct {
	// Turns returns the turns under way.
	Turns func() []Turn
	// Silence is how long a turn may show no progress; Grace how long each step against it may take.
	Silence, Grace time.Duration
	// Go runs a function in the background; it reports false when the server is closing.
	Go    func(func()) bool
	Clock func() time.Time
	Log   *slog.Logger
}

// Watchdog watches the turns of a server.
type Watchdog struct {
	cfg   Config
	stuck map[Turn]*stuck
}

// New makes a Watchdog.
func New(cfg Config) *Watchdog { return &Watchdog{cfg: cfg, stuck: map[Turn]*stuck{}} }

// stuck is how far the watchdog went with a turn.
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

// look looks at every turn once.
func (w *Watchdog) look(ctx context.Context) {
	now := w.cfg.Clock()
	for _, t := range w.cfg.Turns() {
		s := w.stuck[t]
		if s == nil {
			switch {
			case t.Cancelled():
				// It has its time from now on.
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

// press takes the next step against a stuck turn once the last one had its time.
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
		// A goroutine of its own: other stuck turns do not wait for this box.
		w.cfg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, w.cfg.Grace)
			defer cancel()
			if err := t.StopBox(ctx); err != nil {
				w.cfg.Log.WarnContext(ctx, "box of a stuck turn not stopped", "error", err)
			}
		})
	default:
		if err := t.Settle(); err != nil {
			w.cfg.Log.ErrorContext(ctx, "stuck turn not settled", "error", err)
		}
	}
}
