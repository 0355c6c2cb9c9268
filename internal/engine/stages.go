package engine

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/stages"
)

// after runs the configured stages after a turn ended, and then starts the session's next turn.
func (t *turns) after(u *unit, row journal.Row, s stages.Settled) {
	if len(t.p.cfg.After) > 0 {
		scope := t.p.boxes.Scope(u.id)
		s.Box, s.Dir = scope.Box, scope.Dir
		place := t.stages.Begin(scope.Files)
		t.held(u) // registers u as waiting, before the stages can end
		if t.follow(place, func() { t.stage(s) }) {
			return
		}
	}
	if row.Status == holdfast.StatusActive {
		// Ignore the error: next retries a failed start of a turn in the background.
		_ = t.next(context.WithoutCancel(t.p.life.Base), u)
	}
}

// follow runs work when the earlier stages of the scope have ended, and then starts the turns that waited for work.
// While the server shuts down it returns false, without running work: the next start runs the queued turns.
func (t *turns) follow(place *stages.Place, work func()) bool {
	if t.p.life.Turns.Run(func() { t.resume(place.Run(work)) }) {
		return true
	}
	place.Run(nil)
	return false
}

// stage runs the stages that follow an ended turn, in order. A failed stage is recorded as a notice.
func (t *turns) stage(s stages.Settled) {
	s.Idle = t.p.boxes.Calm.Untouched(t.p.life.Base, s.Row)
	for _, stage := range t.p.cfg.After {
		if err := stage.After(t.p.life.Base, s); err != nil {
			t.p.cfg.Journal.Note(t.p.life.Base, t.p.cfg.Log, s.Row.ID, warning(s.Turn, "stage.failed", stage.Name()+": "+err.Error()))
		}
	}
}

// held reports whether stages of an earlier turn keep the session's next turn from starting. If so, the session's unit,
// which counts the queued turns, is kept until resume is called for the session.
func (t *turns) held(u *unit) bool {
	if len(t.p.cfg.After) == 0 {
		return false
	}
	held, first := t.stages.Holds(t.p.boxes.Scope(u.id).Files, u.id)
	if first {
		t.p.units.claim(u.id)
	}
	return held
}

// resume starts the queued turns of sessions whose stages have ended.
func (t *turns) resume(ids []holdfast.SessionID) {
	for _, id := range ids {
		u := t.p.units.lock(id)
		_ = t.next(t.p.life.Base, u)
		t.p.units.unlock(u)
		t.p.units.disclaim(u) // releases the claim that the method held made
	}
}
