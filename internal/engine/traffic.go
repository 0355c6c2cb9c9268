package engine

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// Traffic is the session's running turn as the way out of its box sees it. It waits
// for a server that is just starting: a box may ask before its turn was taken up
// again. Without a running turn it is denied: a box spends nothing between turns.
func (e *Engine) Traffic(ctx context.Context, id holdfast.SessionID) (runtime.Traffic, error) {
	if err := await(ctx, e.started, e.base.Done()); err != nil {
		return nil, err
	}
	e.mu.Lock()
	u := e.units[id]
	e.mu.Unlock()
	var h *host
	if u != nil {
		h = u.host.Load()
	}
	if h == nil || h.usable() != nil {
		return nil, holdfast.Errorf(holdfast.KindDenied, "egress", "no turn of session %s is running: nothing leaves its box between turns", id).
			WithHint("holdfast send %s TEXT", id)
	}
	if err := await(ctx, h.ready, h.Done()); err != nil {
		return nil, err
	}
	return h, nil
}

func await(ctx context.Context, done, over <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-over:
		return leftToNextStart("egress")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// count lets traffic in: what the turn used up before is known.
func (h *host) count() { close(h.ready) }

// Session implements runtime.Traffic.
func (h *host) Session() holdfast.Session { return h.row.Session }

// Done implements runtime.Traffic.
func (h *host) Done() <-chan struct{} { return h.r.ctx.Done() }
