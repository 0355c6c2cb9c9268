package engine

import (
	"context"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/choices"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Update changes a session's labels and settings. A running turn keeps the model that it began with; a new mode applies
// from its next decided tool call, a new budget from its next model call (SDK-P9). Trust and runtime cannot change
// under a running turn: the update fails with conflict, or interrupts the turn if the request says so.
func (e *Engine) Update(ctx context.Context, id holdfast.SessionID, req holdfast.UpdateSession) (holdfast.Session, error) {
	u := e.p.units.lock(id)
	defer e.p.units.unlock(u)
	row, err := e.p.liveRow(ctx, id)
	if err != nil {
		return holdfast.Session{}, err
	}
	_, event, err := e.p.choices.Update(row, req)
	if err != nil || event == (holdfast.SessionUpdated{}) {
		return row.Session, err
	}
	if event.Trust != nil || event.Runtime != nil {
		defer e.turns.park(ctx, u)()
		if err := e.turns.endRunning(ctx, u, "update", req.Interrupt, "trust or runtime changed"); err != nil {
			return holdfast.Session{}, err
		}
	}
	before := e.p.boxes.Scope(id)
	if event.Trust != nil {
		if err := e.p.boxes.StopIn(ctx, before, row, "trust changed"); err != nil {
			return holdfast.Session{}, err
		}
	}
	done, err := e.commitUpdate(ctx, id, req)
	if err != nil {
		return holdfast.Session{}, err
	}
	if u.running != nil {
		u.running.host.acc.Bind(done.Budget, done.TurnBudget)
		u.running.host.updates.SetMode(done.Mode)
	}
	if event.Network != nil {
		now := row
		now.Session = done
		if err := e.p.reconnect(ctx, now); err != nil {
			return done, err
		}
	}
	if event.Trust != nil {
		// A command that read the old row may have started the old box again.
		e.p.boxes.Moved(id)
		err = e.p.boxes.StopIn(context.WithoutCancel(ctx), before, row, "trust changed")
	}
	e.p.hooks.Tell(id, hook.Input{Event: hook.ConfigChange, Trigger: "session", Message: strings.Join(choices.Changed(event), ", ")})
	if event.Trust != nil {
		e.p.hooks.Tell(id, hook.Input{Event: hook.CwdChanged, Trigger: "trust"})
	}
	return done, err
}

// commitUpdate decides an update on the session's current row and commits it: since the caller read
// the row, a turn may have ended or another update may have been made.
func (e *Engine) commitUpdate(ctx context.Context, id holdfast.SessionID, req holdfast.UpdateSession) (holdfast.Session, error) {
	done, err := e.p.cfg.Journal.CommitAt(ctx, id, func(row journal.Row, c *journal.Change) error {
		if row.Status == holdfast.StatusEnded {
			return ended(id)
		}
		patch, event, err := e.p.choices.Update(row, req)
		if err != nil || event == (holdfast.SessionUpdated{}) {
			return err
		}
		c.Set = &patch
		c.Events = []journal.Draft{{Type: holdfast.EventSessionUpdated, Data: event}}
		return nil
	})
	return done.Row.Session, err
}
