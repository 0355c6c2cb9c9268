package engine

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// The expiry of questions looks at the clock at least every expiryLook, so that
// it is in time on a machine that slept, and pauses after what the store refused.
const (
	expiryLook  = time.Minute
	expiryPause = time.Second
)

// nudgeExpiry has the expiry look anew: there is one more question.
func (e *Engine) nudgeExpiry() {
	select {
	case e.bells.expiry <- struct{}{}:
	default:
	}
}

// expirer ends questions whose time is over, whether or not a turn waits.
func (e *Engine) expirer() {
	for {
		wait := expiryLook
		at, err := e.cfg.Store.NextExpiry(e.base)
		switch {
		case err != nil:
			wait = expiryPause
		case !at.IsZero():
			wait = min(wait, max(at.Sub(e.cfg.Clock()), 0))
		}
		if wait > 0 {
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-e.bells.expiry:
				t.Stop()
				continue
			case <-e.leaving:
				t.Stop()
				return
			case <-e.base.Done():
				t.Stop()
				return
			}
		}
		if err := e.expireDue(e.base); err != nil && e.base.Err() == nil {
			e.cfg.Log.Error("questions not expired", "error", err)
			t := time.NewTimer(expiryPause)
			select {
			case <-t.C:
			case <-e.leaving:
				t.Stop()
				return
			}
		}
	}
}

// expireDue ends the questions whose time is over.
func (e *Engine) expireDue(ctx context.Context) error {
	p, err := e.cfg.Store.Approvals(ctx, journal.ApprovalQuery{State: holdfast.ApprovalPending, Due: e.cfg.Clock(), Limit: 1000})
	if err != nil {
		return err
	}
	for _, a := range p.Approvals {
		if err := e.expireOne(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// expireOne ends a question for which nobody came. It takes no session's lock: of
// an answer and the expiry the store takes the first.
func (e *Engine) expireOne(ctx context.Context, a holdfast.Approval) error {
	c := journal.NewChange(a.Session)
	expire(&c, a, "nobody answered within "+a.ExpiresAt.Sub(a.AskedAt).String())
	_, err := e.cfg.Journal.Commit(ctx, c)
	if holdfast.IsKind(err, holdfast.KindConflict) || holdfast.IsKind(err, holdfast.KindNotFound) {
		// Answered, or deleted, in the meantime. A server whose epoch is over hears so
		// with its next write.
		err = nil
	}
	if err == nil {
		e.bells.ring(a.ID)
	}
	return err
}
