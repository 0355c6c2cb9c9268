package engine

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/choices"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Pause pauses an active session and takes a snapshot of its files. It waits at most 20 s for the snapshot, which then
// continues in the background. The session's box is frozen if its driver can freeze boxes. If a message is queued while
// Pause waits for the end of a turn, the session is resumed at once.
func (e *Engine) Pause(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) (holdfast.Session, error) {
	s, err := e.pause(ctx, id, req)
	if err == nil {
		e.turns.stages.Wait(ctx, e.p.boxes.Scope(id).Files, 20*time.Second)
	}
	return s, err
}

// Settle waits until the snapshots of a session's files that are under way or due are taken, or until ctx ends.
func (e *Engine) Settle(ctx context.Context, id holdfast.SessionID) error {
	e.turns.stages.Wait(ctx, e.p.boxes.Scope(id).Files, math.MaxInt64)
	return ctx.Err()
}

func (e *Engine) pause(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) (holdfast.Session, error) {
	if err := choices.CheckReason(req.Reason); err != nil {
		return holdfast.Session{}, err
	}
	u := e.p.units.lock(id)
	defer e.p.units.unlock(u)
	row, err := e.p.liveRow(ctx, id)
	if err != nil {
		return holdfast.Session{}, err
	}
	if row.Status != holdfast.StatusActive {
		return row.Session, holdfast.Errorf(holdfast.KindConflict, "session.pause", "session %s cannot be paused: it is %s", id, holdfast.Quote(string(row.Status))).
			WithHint("only an active session can be paused")
	}
	defer e.turns.park(ctx, u)()
	arrived := u.arrived
	if err := e.turns.endRunning(ctx, u, "pause", req.Interrupt, "the session was paused"); err != nil {
		return holdfast.Session{}, err
	}
	c := journal.NewChange(id)
	c.Status = []holdfast.Status{holdfast.StatusPaused}
	c.Events = []journal.Draft{{Type: holdfast.EventSessionPaused, Data: holdfast.Reason{Reason: cmp.Or(req.Reason, "asked")}}}
	done, err := e.p.cfg.Journal.Commit(ctx, c)
	if err != nil {
		return holdfast.Session{}, err
	}
	row = done.Row
	e.p.conversations.Forget(id)
	e.Branching().between(u, func(ctx context.Context, row journal.Row) {
		e.p.cfg.Snapshots.Take(ctx, row, holdfast.CheckpointStop)
	})
	told := hook.Input{Event: hook.SessionPaused, Message: cmp.Or(req.Reason, "asked")}
	if e.p.boxes.Running(row) != nil {
		e.p.units.claim(id)
		if !e.p.life.Hooks.Run(func() {
			defer e.p.units.disclaim(u)
			// Hooks must run in the box before it freezes.
			e.p.hooks.Fire(e.p.life.Base, id, told)
			// If the freeze fails, the pool's idle timer freezes the box later.
			if err := e.p.boxes.Freeze(e.p.life.Base, row); err != nil {
				e.p.cfg.Log.Debug("the box was not frozen when its session was paused", "session_id", id, "error", err)
			}
		}) {
			e.p.units.disclaim(u)
		}
	} else {
		e.p.hooks.TellOf(ctx, row, told)
	}
	if u.arrived != arrived {
		// A message that was queued while the turn was ending resumes the session, like a message that arrives now.
		resumed, err := e.p.resume(context.WithoutCancel(ctx), u, row, holdfast.ResumeSession{})
		if err != nil {
			e.p.cfg.Log.WarnContext(ctx, "a paused session could not be resumed for a waiting message", "session_id", id, "error", err)
		}
		return resumed.Session, nil
	}
	return row.Session, nil
}

// Resume makes a paused or failed session active again. An active session is returned unchanged. With req.DryRun, Resume
// changes nothing and returns the receipt of the resume that would be made.
func (e *Engine) Resume(ctx context.Context, id holdfast.SessionID, req holdfast.ResumeSession) (holdfast.Resumed, error) {
	u := e.p.units.lock(id)
	defer e.p.units.unlock(u)
	row, err := e.p.liveRow(ctx, id)
	if err != nil {
		return holdfast.Resumed{}, err
	}
	if row.Status == holdfast.StatusActive {
		return holdfast.Resumed{Session: row.Session}, nil
	}
	if req.DryRun {
		plan, err := e.p.resumes.Plan(ctx, row, req.Fresh)
		return holdfast.Resumed{Session: row.Session, Receipt: &plan.Receipt}, err
	}
	if err := e.p.cfg.Turns.Accepts(id); err != nil {
		return holdfast.Resumed{}, err
	}
	out, err := e.p.resume(ctx, u, row, req)
	if err == nil {
		// Ignore next's error: it retries the start of a turn in the background, and the resume has succeeded.
		_ = e.turns.next(ctx, u)
		if row, rerr := e.p.row(ctx, id); rerr == nil {
			e.turns.warm(u, row)
		}
	}
	return out, err
}

// End ends a session for good and stops its box, unless other sessions use the box. Log and files stay. For a session that
// has already ended, End only tries again to stop the box.
func (e *Engine) End(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) (holdfast.Session, error) {
	if err := choices.CheckReason(req.Reason); err != nil {
		return holdfast.Session{}, err
	}
	u := e.p.units.lock(id)
	defer e.p.units.unlock(u)
	row, err := e.p.row(ctx, id)
	if err != nil {
		return row.Session, err
	}
	if row.Status == holdfast.StatusEnded {
		return row.Session, e.p.boxes.Leave(ctx, row)
	}
	defer e.turns.park(ctx, u)()
	if err := e.turns.endRunning(ctx, u, "end", req.Interrupt, "the session was ended"); err != nil {
		return row.Session, err
	}
	waiting, err := e.p.cfg.Stores.Sessions.OpenTurns(ctx, id)
	if err != nil {
		return row.Session, err
	}
	reason := cmp.Or(req.Reason, "asked")
	done, err := e.p.cfg.Journal.CommitAt(ctx, id, func(row journal.Row, c *journal.Change) error {
		for i, t := range waiting {
			c.Turns = append(c.Turns, journal.TurnChange{ID: t.ID, From: holdfast.TurnQueued, To: holdfast.TurnInterrupted, EndSeq: row.LastSeq + int64(i) + 1})
			c.Events = append(c.Events, journal.Draft{Type: holdfast.EventTurnInterrupted, Turn: t.ID, Data: holdfast.TurnEnded{
				Number: t.Number, MessageSeq: t.MessageSeq, Message: "the session was ended",
			}})
		}
		c.Status = []holdfast.Status{holdfast.StatusEnded}
		c.Events = append(c.Events, journal.Draft{Type: holdfast.EventSessionEnded, Data: holdfast.Reason{Reason: reason}})
		return nil
	})
	if err != nil {
		return row.Session, err
	}
	u.queued, u.ask = 0, false
	e.p.conversations.Forget(id)
	e.p.boxes.Moved(id)
	// Hooks must run in the box before it stops, even if the caller has gone away.
	e.p.hooks.Fire(context.WithoutCancel(ctx), id, hook.Input{Event: hook.SessionEnd, Message: reason})
	return done.Row.Session, e.p.boxes.Leave(ctx, done.Row)
}

// Alone calls work with the row of a session while it holds the session's lock. A running turn continues.
func (e *Engine) Alone(ctx context.Context, id holdfast.SessionID, work func(journal.Row) error) error {
	u := e.p.units.lock(id)
	defer e.p.units.unlock(u)
	row, err := e.p.row(ctx, id)
	if err != nil {
		return err
	}
	return work(row)
}
