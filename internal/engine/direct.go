package engine

import (
	"context"
	"errors"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/direct"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/lease"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/sandbox"
)

// byHand implements direct.Sessions, by which package direct works in sessions without a turn.
type byHand struct {
	p     *parts
	turns *turns
}

var _ direct.Sessions = byHand{}

// Command implements direct.Sessions.
func (b byHand) Command(ctx context.Context, id holdfast.SessionID) (func(), error) {
	return b.p.guard.Direct(ctx, id)
}

// Call implements direct.Sessions.
func (b byHand) Call() (holdfast.CallID, error) {
	return b.p.newCall()
}

// Session implements direct.Sessions.
func (b byHand) Session(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error) {
	return b.p.views.Session(ctx, id)
}

// InBox implements direct.Sessions.
func (b byHand) InBox(ctx context.Context, id holdfast.SessionID, work func(context.Context, *sandbox.Box) error) error {
	if err := b.p.life.Draining(); err != nil {
		return err
	}
	u := b.p.units.lock(id)
	err := func() error {
		row, err := b.p.liveRow(ctx, id)
		if err != nil || row.Status == holdfast.StatusActive {
			return err
		}
		if err := b.p.cfg.Turns.Accepts(id); err != nil {
			return err
		}
		if _, err = b.p.resume(ctx, u, row, holdfast.ResumeSession{}); err == nil {
			_ = b.turns.next(ctx, u) // starts the next queued turn; a failed start is retried in the background
		}
		return err
	}()
	u.mu.Unlock()
	defer b.p.units.disclaim(u)
	if err == nil {
		err = b.inBox(ctx, u, work)
	}
	// If the box ended before it received the work, do the work in the next box; try this only once.
	if errors.Is(err, sandbox.ErrUnsent) && ctx.Err() == nil {
		err = b.inBox(ctx, u, work)
	}
	return err
}

func (b byHand) inBox(ctx context.Context, u *unit, work func(context.Context, *sandbox.Box) error) error {
	done := b.p.cfg.Snapshots.Touching(ctx, u.id)
	hold, err := b.p.box(ctx, u, place.Claim{}, nil)
	if err == nil {
		hold, err = lease.Intact(hold, u.id, false)
	}
	defer func() { done(err == nil) }()
	if err != nil {
		return err
	}
	defer hold.Release()
	return work(sandbox.Scoped(ctx, func() sandbox.Scope { return sandbox.Scope{Agents: b.p.cfg.Policy.AgentDirs()} }), hold.Box)
}

// Imported implements direct.Sessions.
func (b byHand) Imported(ctx context.Context, id holdfast.SessionID, files holdfast.Copied, start string) (holdfast.Session, error) {
	done, err := b.p.cfg.Journal.CommitAt(ctx, id, func(row journal.Row, c *journal.Change) error {
		source := *row.Source
		source.Complete, source.Start = true, start
		c.Set = &journal.RowPatch{Source: &source}
		c.Events = []journal.Draft{{Type: holdfast.EventFilesImported, Data: holdfast.FilesImported{
			From: source.From, Files: files.Files, Bytes: files.Bytes, Start: start,
		}}}
		return nil
	})
	return done.Row.Session, err
}
