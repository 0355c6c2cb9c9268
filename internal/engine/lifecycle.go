package engine

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Pause sets an active session aside. Its box is kept, frozen where the driver
// can, until it has been idle for long. A message that comes meanwhile resumes the
// session at once; the answer is the session as it is then.
func (e *Engine) Pause(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) (holdfast.Session, error) {
	if err := checkReason(req.Reason); err != nil {
		return holdfast.Session{}, err
	}
	u := e.lock(id)
	defer e.unlock(u)
	row, err := e.liveRow(ctx, id)
	if err != nil {
		return holdfast.Session{}, err
	}
	if row.Status != holdfast.StatusActive {
		return row.Session, holdfast.Errorf(holdfast.KindConflict, "session.pause", "session %s is %s", id, holdfast.Quote(string(row.Status))).
			WithHint("only an active session can be paused")
	}
	defer e.park(ctx, u)()
	arrived := u.arrived
	if err := e.endRunning(ctx, u, "pause", req.Interrupt, "the session was paused"); err != nil {
		return holdfast.Session{}, err
	}
	c := journal.NewChange(id)
	c.Status = []holdfast.Status{holdfast.StatusPaused}
	c.Events = []journal.Draft{{Type: holdfast.EventSessionPaused, Data: holdfast.Reason{Reason: or(req.Reason, "asked")}}}
	done, err := e.cfg.Journal.Commit(ctx, c)
	if err != nil {
		return holdfast.Session{}, err
	}
	row = done.Row
	e.conversations.Forget(id)
	told := hook.Input{Event: hook.SessionPaused, Message: or(req.Reason, "asked")}
	if e.boxes.Running(row) != nil {
		e.claim(id)
		if !e.crews.hooks.run(func() {
			defer e.disclaim(u)
			// Hooks in the box come before its freeze.
			e.fire(e.base, u, told)
			// The idle timer does it later where this cannot.
			if err := e.boxes.Freeze(e.base, row); err != nil {
				e.cfg.Log.Debug("not frozen at pause", "session_id", id, "error", err)
			}
		}) {
			e.disclaim(u)
		}
	} else {
		e.tellOf(ctx, row, told)
	}
	if u.arrived != arrived {
		// A message that was accepted while the turn was ending resumes the session, like one
		// that arrives now.
		resumed, err := e.resume(context.WithoutCancel(ctx), u, row, holdfast.ResumeSession{})
		if err != nil {
			e.cfg.Log.WarnContext(ctx, "a message waits in a paused session", "session_id", id, "error", err)
		}
		return resumed.Session, nil
	}
	return row.Session, nil
}

// Resume brings a paused or errored session back. An active one is unchanged.
func (e *Engine) Resume(ctx context.Context, id holdfast.SessionID, req holdfast.ResumeSession) (holdfast.Resumed, error) {
	u := e.lock(id)
	defer e.unlock(u)
	row, err := e.liveRow(ctx, id)
	if err != nil {
		return holdfast.Resumed{}, err
	}
	if row.Status == holdfast.StatusActive {
		return holdfast.Resumed{Session: row.Session}, nil
	}
	if req.DryRun {
		f, err := e.facts(ctx, row)
		if err != nil {
			return holdfast.Resumed{}, err
		}
		plan, err := PlanResume(f, req.Fresh)
		return holdfast.Resumed{Session: row.Session, Receipt: &plan.Receipt}, err
	}
	out, err := e.resume(ctx, u, row, req)
	if err == nil {
		// What fails is tried again on its own: the session is resumed.
		_ = e.next(ctx, u)
		if row, rerr := e.cfg.Store.Row(ctx, id); rerr == nil {
			e.warm(u, row)
		}
	}
	return out, err
}

func (e *Engine) facts(ctx context.Context, row journal.Row) (Facts, error) {
	files, err := e.boxes.Files(ctx, row)
	if err != nil {
		return Facts{}, err
	}
	f := Facts{
		Session: row.Session, HadFiles: files.HadFiles, Workspace: e.boxes.Workspace(row.ID).Exists(ctx), Agent: row.Runtime != loopRuntime,
		BoxLive: e.boxes.Running(row) != nil,
	}
	f.AtRisk, err = e.atRisk(ctx, row)
	return f, err
}

// resume executes a plan. Afterwards turns may wait that the caller has to start.
// The caller holds u.mu.
func (e *Engine) resume(ctx context.Context, u *unit, row journal.Row, req holdfast.ResumeSession) (holdfast.Resumed, error) {
	began := e.cfg.Clock()
	f, err := e.facts(ctx, row)
	if err != nil {
		return holdfast.Resumed{Session: row.Session}, err
	}
	plan, err := PlanResume(f, req.Fresh)
	if err != nil {
		return holdfast.Resumed{Session: row.Session}, err
	}
	if plan.FilesLost {
		// A box without its workspace works on a removed directory.
		if err := e.boxes.Stop(ctx, row, "the workspace is gone"); err != nil {
			return holdfast.Resumed{Session: row.Session}, err
		}
	}
	c := journal.NewChange(u.id)
	c.Status = plan.Walk
	none, no := "", false
	c.Set = &journal.RowPatch{Error: &none}
	if plan.FilesLost {
		// Nothing is left to lose, and the first box gets the agent's files again.
		c.Set.FilesSeeded, c.Set.HadFiles = &no, &no
		if row.Source != nil {
			c.Set.Source = &holdfast.Source{From: row.Source.From, Complete: row.Source.Complete}
		}
	}
	plan.Receipt.DurationMS = float64(e.cfg.Clock().Sub(began).Microseconds()) / 1000
	c.Events = []journal.Draft{{Type: holdfast.EventSessionResumed, Data: plan.Receipt}}
	done, err := e.cfg.Journal.Commit(ctx, c)
	if err != nil {
		return holdfast.Resumed{Session: row.Session}, err
	}
	u.ask = true
	e.tellOf(ctx, done.Row, hook.Input{Event: hook.SessionResumed, Trigger: string(plan.Receipt.Tier), Message: string(plan.Receipt.From)})
	return holdfast.Resumed{Session: done.Row.Session, Receipt: &plan.Receipt}, nil
}

// End closes a session for good and ends its box; log and files stay. Ending an
// ended session changes nothing; a box that could not be ended then is.
func (e *Engine) End(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) (holdfast.Session, error) {
	u := e.lock(id)
	defer e.unlock(u)
	row, err := e.end(ctx, u, req)
	return row.Session, err
}

func (e *Engine) end(ctx context.Context, u *unit, req holdfast.EndSession) (journal.Row, error) {
	if err := checkReason(req.Reason); err != nil {
		return journal.Row{}, err
	}
	row, err := e.cfg.Store.Row(ctx, u.id)
	if err != nil {
		return row, err
	}
	if row.Status == holdfast.StatusEnded {
		return row, e.boxes.Leave(ctx, row)
	}
	defer e.park(ctx, u)()
	if err := e.endRunning(ctx, u, "end", req.Interrupt, "the session was ended"); err != nil {
		return row, err
	}
	waiting, err := e.cfg.Store.OpenTurns(ctx, u.id)
	if err != nil {
		return row, err
	}
	reason := or(req.Reason, "asked")
	done, err := e.cfg.Journal.CommitAt(ctx, u.id, func(row journal.Row, c *journal.Change) error {
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
		return row, err
	}
	u.queued, u.ask = 0, false
	e.conversations.Forget(u.id)
	e.boxes.Moved(u.id)
	// Hooks in the box come before its end, whoever goes away meanwhile.
	e.fire(context.WithoutCancel(ctx), u, hook.Input{Event: hook.SessionEnd, Message: reason})
	return done.Row, e.boxes.Leave(ctx, done.Row)
}

// Delete removes a session with its log and its files. It wants Purge, because
// nothing of it comes back.
func (e *Engine) Delete(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) error {
	if !req.Purge {
		return holdfast.Errorf(holdfast.KindInvalid, "session.delete", "deleting session %s removes its log and files for good", id).
			WithHint("repeat with purge (--purge, or purge: true), or keep them: holdfast session end %s", id)
	}
	u := e.lock(id)
	defer e.unlock(u)
	if _, err := e.end(ctx, u, req); err != nil {
		return err
	}
	// Files first: a crash in between leaves a session that can be deleted again.
	if err := e.boxes.RemoveFiles(ctx, id); err != nil {
		return err
	}
	if err := e.cfg.Store.DeleteSession(ctx, id); err != nil {
		return err
	}
	e.cfg.Journal.Drop(id)
	// Once more: who was about to start a box may have made the workspace anew.
	return e.boxes.RemoveFiles(ctx, id)
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
