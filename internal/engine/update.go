package engine

import (
	"context"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/choices"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Update changes a session's labels and choices. The running turn keeps the model
// it began with; a new mode holds from its next tool call that is decided on, a new
// budget from its next model call (SDK-P9). A change of trust or runtime would take
// its ground away: during a turn it is conflict unless the request interrupts it.
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
	if event.Trust != nil {
		if err := e.p.boxes.Stop(ctx, row, "trust changed"); err != nil {
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
		// An exec that read the old row may have started the old box again.
		e.p.boxes.Moved(id)
		err = e.p.boxes.Stop(context.WithoutCancel(ctx), row, "trust changed")
	}
	e.p.hooks.Tell(id, hook.Input{Event: hook.ConfigChange, Trigger: "session", Message: strings.Join(choices.Changed(event), ", ")})
	if event.Trust != nil {
		e.p.hooks.Tell(id, hook.Input{Event: hook.CwdChanged, Trigger: "trust"})
	}
	return done, err
}

// commitUpdate decides an update on the session's present record and writes it: a turn
// may have ended, or another update come, since the caller read it.
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
