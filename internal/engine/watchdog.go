package engine

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/watchdog"
)

// watched implements watchdog.Turn for a running turn.
type watched struct {
	t *turns
	u *unit
	r *turnRun
}

// running returns the running turns whose runtime has not returned yet.
func (t *turns) running() []watchdog.Turn {
	var out []watchdog.Turn
	for _, u := range t.p.units.busy() {
		// A locked unit is making progress; the watchdog checks it next time.
		if u.mu.TryLock() {
			// Once the runtime has returned, only the store can be slow.
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
