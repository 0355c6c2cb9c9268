package engine

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/branch"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/permit"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Branching gives packages snapshot and branch access to the sessions. Safe for concurrent use.
type Branching struct{ e *Engine }

var _ branch.Sessions = Branching{}

// Branching returns the access of packages snapshot and branch to the sessions.
func (e *Engine) Branching() Branching { return Branching{e} }

// Between implements branch.Sessions.
func (b Branching) Between(id holdfast.SessionID, work func(context.Context, journal.Row)) <-chan struct{} {
	u := b.e.p.units.lock(id)
	defer b.e.p.units.unlock(u)
	return b.between(u, work)
}

// between does what Between does, for a unit (the state of a session in use) whose lock is held.
func (b Branching) between(u *unit, work func(context.Context, journal.Row)) <-chan struct{} {
	p, id, done := b.e.p, u.id, make(chan struct{})
	if u.running != nil || p.life.Base == nil || p.life.Detached() || !b.e.turns.follow(b.e.turns.stages.Begin(p.boxes.Scope(id).Files), func() {
		defer close(done)
		if row, err := p.row(p.life.Base, id); err == nil {
			work(p.life.Base, row)
		}
	}) {
		return nil
	}
	return done
}

// Working implements branch.Sessions. A turn counts as running even before its start is recorded.
func (b Branching) Working(id holdfast.SessionID) holdfast.SessionID {
	for _, u := range b.e.p.units.busy() {
		if boxes := b.e.p.boxes; u.id != id && boxes.Scope(u.id).Files == boxes.Scope(id).Files {
			return u.id
		}
	}
	return ""
}

// Rested implements branch.Sessions.
func (b Branching) Rested(ctx context.Context, id holdfast.SessionID) {
	u := b.e.p.units.lock(id) // wait for the lock: while a turn's end is recorded and its stages begin, the lock is held
	b.e.p.units.unlock(u)
	b.e.turns.stages.Wait(ctx, b.e.p.boxes.Scope(id).Files, time.Minute)
}

// Quiet implements branch.Sessions.
func (b Branching) Quiet(ctx context.Context, id holdfast.SessionID, op string, interrupt bool, work func(context.Context, journal.Row) error) (journal.Row, error) {
	p, t := b.e.p, b.e.turns
	u := p.units.lock(id)
	defer p.units.unlock(u)
	row, err := p.liveRow(ctx, id)
	if err == nil {
		err = p.life.Draining()
	}
	if err != nil {
		return row, err
	}
	defer t.park(ctx, u)()
	if err := t.endRunning(ctx, u, op, interrupt, "the session was rewound"); err != nil {
		return row, err
	}
	stage := t.stages.Begin(p.boxes.Scope(id).Files)
	u.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	t.resume(stage.Run(func() {
		err = place.Without(ctx, p.boxes, row, op, func() (err error) {
			if row, err = p.row(ctx, id); err == nil {
				err = work(ctx, row)
			}
			return err
		})
	}))
	u.mu.Lock()
	p.conversations.Forget(id)
	if err != nil {
		return row, err
	}
	return p.row(ctx, id)
}

// Conversation implements branch.Sessions.
func (b Branching) Conversation(ctx context.Context, id holdfast.SessionID, use func(*conversation.Conversation) error) error {
	return b.e.p.conversation(ctx, id, use)
}

// LastCut returns when the machine last lost power; see boots.Guard.
func (b Branching) LastCut(id holdfast.SessionID) (at time.Time, direct bool) {
	return b.e.p.guard.LastCut(id)
}

// Taken runs the session's hooks for the event that a snapshot was taken.
func (b Branching) Taken(id holdfast.SessionID, taken holdfast.SnapshotTaken) {
	b.e.p.hooks.Tell(id, hook.Input{Event: hook.SnapshotTaken, Trigger: string(taken.Reason), Message: string(taken.Checkpoint)})
}

// Walls returns the path rules of a session's box as they are now.
func (b Branching) Walls(ctx context.Context, row journal.Row) (sandbox.Walls, error) {
	return b.e.p.policies.Layers(permit.Session{Row: row}).Walls(ctx)
}

// Choose implements branch.Sessions.
func (b Branching) Choose(ctx context.Context, from journal.Row, req holdfast.ForkSession) (row journal.Row, events []journal.Draft, err error) {
	if err := b.e.p.life.Draining(); err != nil {
		return row, nil, err
	}
	if row, err = b.e.p.choices.Fork(ctx, from, req); err != nil {
		return row, nil, err
	}
	events, err = b.e.p.policies.Unwalled(ctx, row, []journal.Draft{{Type: holdfast.EventSessionCreated, Data: created(row.Session)}})
	return row, events, err
}

// rested waits at most 250 ms for the stages after the last turn, if only they keep a turn of the session
// from starting, so that a message need not be queued. It releases the unit's lock meanwhile.
func (t *turns) rested(ctx context.Context, u *unit) {
	if u.running == nil && u.parked == 0 {
		u.mu.Unlock()
		defer u.mu.Lock()
		t.stages.Wait(ctx, t.p.boxes.Scope(u.id).Files, 250*time.Millisecond)
	}
}
