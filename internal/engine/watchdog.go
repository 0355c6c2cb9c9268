package engine

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast/internal/runtime"
)

// watchdog ends turns that show no progress, and those that do not heed that they
// were interrupted: first it cancels them, then it stops their box, and in the
// end it settles them without their runtime, so that the session is usable in
// any case.
func (e *Engine) watchdog() {
	every := min(max(e.cfg.TurnSilence/20, 10*time.Millisecond), 10*time.Second)
	tick := time.NewTicker(every)
	defer tick.Stop()
	stages := map[*turnRun]*stuck{}
	for {
		select {
		case <-e.base.Done():
			return
		case <-tick.C:
		}
		now := e.cfg.Clock()
		for u, r := range e.runs() {
			s := stages[r]
			if s == nil {
				switch {
				case r.ctx.Err() != nil:
					// Cancelled already; it has its time from now on.
					s = &stuck{stage: 1, since: now}
				case r.host.acc.ParkedUntil() != nil:
					// It waits for its provider, for as long as the log says.
					continue
				case r.host.waiting.Load() > 0:
					// It waits for a person.
					continue
				case now.Sub(time.UnixMilli(r.host.progress.Load())) < e.cfg.TurnSilence:
					continue
				default:
					s = &stuck{}
				}
				stages[r] = s
			}
			e.press(u, r, s, now)
		}
		for r := range stages {
			select {
			case <-r.done:
				delete(stages, r)
			default:
			}
		}
	}
}

// stuck is how far the watchdog went with a turn.
type stuck struct {
	stage int
	since time.Time
}

// press takes the next step against a stuck turn once the last one had its time.
func (e *Engine) press(u *unit, r *turnRun, s *stuck, now time.Time) {
	if s.stage > 0 && now.Sub(s.since) < e.cfg.KillGrace {
		return
	}
	s.stage++
	s.since = now
	switch s.stage {
	case 1:
		r.cancel(errStuck)
	case 2:
		// A goroutine of its own: other stuck turns do not wait for this box.
		e.claim(u.id)
		if !e.crews.rest.run(func() {
			defer e.disclaim(u)
			ctx, cancel := context.WithTimeout(e.base, e.cfg.KillGrace)
			defer cancel()
			if err := e.boxes.Stop(ctx, r.host.row, "a turn was stuck"); err != nil {
				e.cfg.Log.WarnContext(r.ctx, "box of a stuck turn not stopped", "session_id", u.id, "error", err)
			}
		}) {
			e.disclaim(u)
		}
	default:
		if _, err := e.settle(u, r, runtime.Result{}, errStuck); err != nil {
			e.cfg.Log.ErrorContext(r.ctx, "stuck turn not settled", "session_id", u.id, "error", err)
		}
	}
}

// runs is a copy of the turns under way.
func (e *Engine) runs() map[*unit]*turnRun {
	e.mu.Lock()
	units := make([]*unit, 0, len(e.units))
	for _, u := range e.units {
		if u.busy.Load() {
			units = append(units, u)
		}
	}
	e.mu.Unlock()
	out := make(map[*unit]*turnRun, len(units))
	for _, u := range units {
		// A unit that is being decided about makes progress; it is seen next time.
		if u.mu.TryLock() {
			// Of one that has returned only the store is late.
			if r := u.running; r != nil && !r.returned.Load() {
				out[u] = r
			}
			u.mu.Unlock()
		}
	}
	return out
}

var _ runtime.Host = (*host)(nil)
