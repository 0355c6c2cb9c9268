package engine

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/conversation"
)

// recount fills the account of a turn that goes on after a crash from its log, and
// finds the newest message that joined it.
func recount(ctx context.Context, h *host) error {
	return h.Conversation(ctx, func(c *conversation.Conversation) error {
		if c.Turn.ID != h.r.id {
			return nil // it did not begin
		}
		h.acc.Recount(&c.Turn)
		h.u.mu.Lock()
		defer h.u.mu.Unlock()
		h.r.steerSeq = max(h.r.steerSeq, c.Turn.Steered)
		return nil
	})
}

// Reserve implements runtime.Meter.
func (h *host) Reserve(most holdfast.Usage) (func(holdfast.Usage, bool), error) {
	return h.acc.Reserve(most)
}

// Bounded implements runtime.Meter.
func (h *host) Bounded() bool {
	return h.acc.Bounded()
}

// parkLook is how often a parked turn looks at the clock: it wakes in time on a
// machine that slept.
const parkLook = time.Minute

// Park implements runtime.Meter. A parked turn gives its box back, is no stuck
// one, and lets go at once when the server shuts down: the next start waits for
// the rest.
func (h *host) Park(ctx context.Context, until time.Time) error {
	began := h.e.cfg.Clock()
	h.acc.Park(until)
	defer func() {
		h.alive()
		h.acc.Waited(h.e.cfg.Clock().Sub(began))
		h.acc.Park(time.Time{})
	}()
	h.giveBack()
	for {
		left := until.Sub(h.e.cfg.Clock())
		if left <= 0 {
			return nil
		}
		t := time.NewTimer(min(left, parkLook, max(h.e.cfg.TurnSilence, time.Millisecond)))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-h.e.leaving:
			t.Stop()
			return errLetGo
		}
	}
}

// giveBack releases the box until it is asked for again.
func (h *host) giveBack() {
	h.asking.Lock()
	defer h.asking.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hold != nil {
		h.hold.Release()
		h.hold = nil
	}
}

// Usage is what a session used up, the running turn included.
func (e *Engine) Usage(ctx context.Context, id holdfast.SessionID) (holdfast.SessionUsage, error) {
	u := e.lock(id)
	defer e.unlock(u)
	row, err := e.cfg.Store.Row(ctx, id)
	if err != nil {
		return holdfast.SessionUsage{}, err
	}
	all := row.Spent
	out := holdfast.SessionUsage{
		Usage: all.Usage, Turns: all.Turns, Calls: all.Calls, DurationMS: all.DurationMS,
		Budget: row.Budget, TurnBudget: row.TurnBudget,
	}
	if r := u.running; r != nil {
		now := r.host.acc.Spent()
		reserved := r.host.acc.Reserved()
		out.Running, out.Reserved, all = &now, &reserved, all.Add(now)
	}
	if all.UnpricedCalls == 0 {
		usd := float64(all.CostMicroUSD) / 1e6
		out.CostUSD = &usd
	}
	return out, nil
}

// shown adds to a session what only its running turn knows.
func (e *Engine) shown(s holdfast.Session) holdfast.Session {
	e.mu.Lock()
	u := e.units[s.ID]
	e.mu.Unlock()
	if u == nil {
		return s
	}
	if h := u.host.Load(); h != nil {
		s.ParkedUntil = h.acc.ParkedUntil()
		s.PendingApprovals = int(h.waiting.Load())
	}
	return s
}
