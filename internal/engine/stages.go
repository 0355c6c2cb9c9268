package engine

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/stages"
)

// after runs the stages that follow a turn, and then starts the next one.
func (t *turns) after(u *unit, row journal.Row, s stages.Settled) {
	if len(t.p.cfg.After) > 0 {
		scope := t.p.boxes.Scope(u.id)
		s.Box, s.Dir = scope.Box, scope.Dir
		at, before, own := t.stages.Begin(s.Box)
		t.held(u) // before the stages can end
		if t.p.life.Turns.Run(func() {
			if before != nil {
				<-before
			}
			t.stage(s)
			close(own)
			t.resume(t.stages.End(s.Box, at))
		}) {
			return
		}
		// The engine has closed: the next start begins the turns that wait.
		close(own)
		t.stages.End(s.Box, at)
	}
	if row.Status == holdfast.StatusActive {
		// A failure is tried again in the background.
		_ = t.next(context.WithoutCancel(t.p.life.Base), u)
	}
}

// stage runs the stages of a turn.
func (t *turns) stage(s stages.Settled) {
	for _, stage := range t.p.cfg.After {
		err := stage.After(t.p.life.Base, s)
		if err == nil {
			continue
		}
		c := journal.NewChange(s.Row.ID)
		c.Events = []journal.Draft{{Type: holdfast.EventNotice, Turn: s.Turn, Data: holdfast.Notice{
			Code: "stage.failed", Level: "warning", Text: journal.Plain(stage.Name() + ": " + err.Error()),
		}}}
		if _, err := t.p.cfg.Journal.Commit(context.WithoutCancel(t.p.life.Base), c); err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
			t.p.cfg.Log.Warn("event not recorded", "session_id", s.Row.ID, "type", holdfast.EventNotice, "error", err)
		}
	}
}

// held reports whether stages hold the new turns of a session back. If so, the session's unit
// stays until resume: it knows how many turns wait.
func (t *turns) held(u *unit) bool {
	if len(t.p.cfg.After) == 0 {
		return false
	}
	held, first := t.stages.Holds(t.p.boxes.Scope(u.id).Box, u.id)
	if first {
		t.p.units.claim(u.id)
	}
	return held
}

// resume starts the waiting turns of sessions that stages held back.
func (t *turns) resume(ids []holdfast.SessionID) {
	for _, id := range ids {
		u := t.p.units.lock(id)
		// A failure is tried again in the background.
		_ = t.next(t.p.life.Base, u)
		t.p.units.unlock(u)
		t.p.units.disclaim(u) // the claim of held
	}
}
