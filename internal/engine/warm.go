package engine

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// warm starts a session's agent in the background, if its runtime can and the server may keep
// agents warm. A turn that starts meanwhile waits for it. The caller holds u.mu.
func (t *turns) warm(u *unit, row journal.Row) {
	w, ok := t.p.runtimes[row.Runtime].(runtime.Warmer)
	if !ok || t.p.cfg.Turns.Warm <= 0 || u.running != nil || u.warming != nil || row.Status != holdfast.StatusActive {
		return
	}
	done := make(chan struct{})
	u.warming = done
	t.p.units.claim(u.id)
	finish := func() {
		u.mu.Lock()
		u.warming = nil
		u.mu.Unlock()
		close(done)
		t.p.units.disclaim(u)
	}
	if !t.p.life.Rest.Run(func() {
		err := t.warmUp(u, row, w)
		finish()
		if err != nil {
			// The next turn starts the agent itself, or reports why it cannot.
			t.p.cfg.Log.Debug("an agent could not be started ahead of its turn", "session_id", u.id, "error", err)
			return
		}
		for _, id := range t.warmed.Add(u.id, t.p.cfg.Turns.Warm) {
			t.cool(id)
		}
	}) {
		u.warming = nil
		close(done)
		// The engine is closing: drop the goroutine's claim. The caller still has its own claim on u.
		t.p.units.disclaim(u)
	}
}

func (t *turns) warmUp(u *unit, row journal.Row, w runtime.Warmer) error {
	ctx, cancel := context.WithCancelCause(t.p.life.Base)
	defer cancel(nil)
	work, err := t.p.brief(ctx, row)
	if err != nil {
		return err
	}
	h := newHost(t.p, u, &turnRun{ctx: ctx, cancel: cancel, done: make(chan struct{})}, row)
	defer h.close()
	return w.Warm(ctx, work, h)
}

// cool stops the box of a session whose agent was started ahead of its turn, unless a turn of the session runs or its
// agent is being started.
func (t *turns) cool(id holdfast.SessionID) {
	u := t.p.units.lock(id)
	defer t.p.units.unlock(u)
	if u.running != nil || u.warming != nil {
		return
	}
	row, err := t.p.row(t.p.life.Base, id)
	if err == nil {
		err = t.p.boxes.Stop(t.p.life.Base, row, "more agents are warm than claude.warm allows")
	}
	if err != nil {
		t.p.cfg.Log.Debug("the box of an agent that was started ahead could not be stopped", "session_id", id, "error", err)
	}
}
