package engine

import (
	"context"
	"errors"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/direct"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Direct is what is done in the boxes of sessions beside their turns.
func (e *Engine) Direct() *direct.Work { return e.direct }

// byHand is what direct work asks of sessions.
type byHand struct{ e *Engine }

var _ direct.Sessions = byHand{}

// Command implements direct.Sessions.
func (b byHand) Command(ctx context.Context, id holdfast.SessionID) (func(), error) {
	return b.e.boots.Direct(ctx, id)
}

// Call implements direct.Sessions.
func (b byHand) Call() (holdfast.CallID, error) {
	id, err := b.e.uuid()
	return holdfast.CallID(id), err
}

// Session implements direct.Sessions.
func (b byHand) Session(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error) {
	return b.e.Session(ctx, id)
}

// InBox implements direct.Sessions.
func (b byHand) InBox(ctx context.Context, id holdfast.SessionID, work func(context.Context, *sandbox.Box) error) error {
	e := b.e
	if err := e.draining(); err != nil {
		return err
	}
	u := e.lock(id)
	err := func() error {
		row, err := e.liveRow(ctx, id)
		if err != nil || row.Status == holdfast.StatusActive {
			return err
		}
		if _, err := e.resume(ctx, u, row, holdfast.ResumeSession{}); err != nil {
			return err
		}
		// What fails is tried again on its own.
		_ = e.next(ctx, u)
		return nil
	}()
	u.mu.Unlock()
	defer e.disclaim(u)
	if err != nil {
		return err
	}
	return e.inBox(ctx, u, work)
}

// inBox does work in the box. If the box ended before it received the work, inBox does it
// in the next box, once.
func (e *Engine) inBox(ctx context.Context, u *unit, work func(context.Context, *sandbox.Box) error) error {
	err := e.inBoxOnce(ctx, u, work)
	if errors.Is(err, sandbox.ErrUnsent) && ctx.Err() == nil {
		err = e.inBoxOnce(ctx, u, work)
	}
	return err
}

func (e *Engine) inBoxOnce(ctx context.Context, u *unit, work func(context.Context, *sandbox.Box) error) error {
	hold, err := e.acquire(ctx, u, place.Claim{}, nil)
	if err != nil {
		e.missing(ctx, u, err)
		return err
	}
	if err := intact(hold, u.id, false); err != nil {
		return err
	}
	defer hold.Release()
	return work(ctx, hold.Box)
}

// missing sets a session whose files turn out to be gone to error, which is from
// where it can be resumed without them. A running turn finds it out itself.
func (e *Engine) missing(ctx context.Context, u *unit, err error) {
	if !place.AreFilesGone(err) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	row, rerr := e.cfg.Store.Row(ctx, u.id)
	if rerr != nil || row.Status != holdfast.StatusActive || u.running != nil {
		return
	}
	c := journal.NewChange(u.id)
	c.Status = []holdfast.Status{holdfast.StatusError}
	msg := err.Error()
	c.Set = &journal.RowPatch{Error: &msg}
	c.Events = []journal.Draft{{Type: holdfast.EventSessionError, Data: holdfast.Failure{
		Kind: holdfast.KindOf(err), Message: msg, Hint: holdfast.HintOf(err),
	}}}
	if _, cerr := e.cfg.Journal.Commit(ctx, c); cerr != nil {
		e.cfg.Log.WarnContext(ctx, "missing files not recorded", "session_id", u.id, "error", cerr)
	}
}
