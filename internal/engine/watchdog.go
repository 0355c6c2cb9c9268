package engine

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/watchdog"
)

// watched is a running turn as the watchdog sees it.
type watched struct {
	t *turns
	u *unit
	r *turnRun
}

// running returns the turns whose runtime is at work.
func (t *turns) running() []watchdog.Turn {
	var out []watchdog.Turn
	for _, u := range t.p.units.busy() {
		// A unit that is being decided about makes progress; it is seen next time.
		if u.mu.TryLock() {
			// When the runtime has returned, only the store is late.
			if r := u.running; r != nil && !r.returned.Load() {
				out = append(out, watched{t, u, r})
			}
			u.mu.Unlock()
		}
	}
	return out
}

func (w watched) Done() <-chan struct{} { return w.r.done }
func (w watched) Cancelled() bool       { return w.r.ctx.Err() != nil }
func (w watched) Waits() bool {
	return w.r.host.acc.ParkedUntil() != nil || w.r.host.waiting.Load() > 0
}
func (w watched) Progress() time.Time { return time.UnixMilli(w.r.host.progress.Load()) }
func (w watched) Cancel()             { w.r.cancel(errStuck) }

func (w watched) StopBox(ctx context.Context) error {
	return w.t.p.boxes.Stop(ctx, w.r.host.row, "a turn was stuck")
}

func (w watched) Settle() error {
	_, err := w.t.settle(w.u, w.r, runtime.Result{}, errStuck)
	return err
}
