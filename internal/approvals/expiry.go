package approvals

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// The loop compares the clock at least every expiryLook, so that it expires questions in time even if the machine was
// asleep. After a failed read or write it pauses for expiryPause.
const (
	expiryLook  = time.Minute
	expiryPause = time.Second
)

// nudge makes the loop compute the next expiry again, after a new question.
func (q *Questions) nudge() {
	select {
	case q.bells.expiry <- struct{}{}:
	default:
	}
}

// Expire runs the loop that expires overdue questions, whether or not a turn waits for them, until
// ctx ends or leaving is closed.
func (q *Questions) Expire(ctx context.Context, leaving <-chan struct{}) {
	for {
		wait := expiryLook
		at, err := q.cfg.Store.NextExpiry(ctx)
		switch {
		case err != nil:
			wait = expiryPause
		case !at.IsZero():
			wait = min(wait, max(at.Sub(q.cfg.Clock()), 0))
		}
		if wait > 0 {
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-q.bells.expiry:
				t.Stop()
				continue
			case <-leaving:
				t.Stop()
				return
			case <-ctx.Done():
				t.Stop()
				return
			}
		}
		if err := q.ExpireDue(ctx); err != nil && ctx.Err() == nil {
			q.cfg.Log.Error("overdue approval questions could not be expired and are tried again", "error", err)
			t := time.NewTimer(expiryPause)
			select {
			case <-t.C:
			case <-leaving:
				t.Stop()
				return
			}
		}
	}
}

// ExpireDue expires the questions that are overdue now.
func (q *Questions) ExpireDue(ctx context.Context) error {
	for a, err := range journal.EachApproval(ctx, q.cfg.Store.Approvals, journal.ApprovalQuery{State: holdfast.ApprovalPending, Due: q.cfg.Clock()}) {
		if err != nil {
			return err
		}
		if err := q.expireOne(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// expireOne expires a question that nobody answered. If an answer was recorded first, the store
// refuses the change and expireOne returns nil.
func (q *Questions) expireOne(ctx context.Context, a holdfast.Approval) error {
	c := journal.NewChange(a.Session)
	expire(&c, a, "nobody answered within "+a.ExpiresAt.Sub(a.AskedAt).String())
	_, err := q.cfg.Journal.Commit(ctx, c)
	if holdfast.IsKind(err, holdfast.KindConflict) || holdfast.IsKind(err, holdfast.KindNotFound) {
		// The question was answered or its session deleted meanwhile. (If the conflict means that
		// another server took over, the next write fails too.)
		err = nil
	}
	if err == nil {
		q.bells.ring(a.ID)
	}
	return err
}
