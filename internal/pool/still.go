package pool

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// stillReason is the reason in the event of a freeze for Still.
const stillReason = "snapshot"

// Still runs fn while no process of the box runs, so that fn finds files that do not change. It emits the event of a
// freeze, freezes the box, runs fn and thaws the box again. frozen reports that no process of the box ran during the
// whole of fn.
//
// fn runs without a freeze, and without an event, if nothing would be frozen (the box is stopped or frozen already), if
// the box has a claim, because the freeze would hit another's calls, or if the driver cannot freeze. A caller that has
// a claim calls Hold.Still. A box without a process is frozen all the same, so callers look with Rest first.
//
// If ready is not nil, the freeze waits until ready is closed; the event and the closing of the gate do not wait.
//
// The context of fn ends after most, and then the processes run again, whatever fn does; fn must return soon. Until it
// returns, the pool neither starts, stops nor freezes the box. Requests to do so wait. A new claim of the frozen box
// waits until the thaw. Still returns the error of fn, or says why the box could not be thawed; then the next claim of
// the box thaws it. If ctx ends before the box's turn comes, or the pool is closed, fn does not run.
func (p *Pool) Still(ctx context.Context, id holdfast.BoxID, most time.Duration, ready <-chan struct{}, fn func(context.Context) error) (frozen bool, err error) {
	err = p.roster.with(ctx, id, func(e *entry) error {
		frozen, err = e.still(ctx, 0, most, ready, fn)
		return err
	})
	return frozen, err
}

// Still is Pool.Still for the box of the claim. Calls of this claim are frozen too; claims of
// others still prevent the freeze.
func (h *Hold) Still(ctx context.Context, most time.Duration, ready <-chan struct{}, fn func(context.Context) error) (frozen bool, err error) {
	err = h.roster.with(ctx, h.e.box.id, func(e *entry) error {
		frozen, err = e.still(ctx, 1, most, ready, fn)
		return err
	})
	return frozen, err
}

// still implements Pool.Still; own is how many claims of the box the caller has. The box's lock op is held.
func (e *entry) still(ctx context.Context, own int, most time.Duration, ready <-chan struct{}, fn func(context.Context) error) (frozen bool, err error) {
	conn, frozen := e.quiet(ctx, own)
	if conn != nil && e.suspendWithin(ctx, most, ready, conn) {
		return e.box.thawAfter(ctx, conn, most, fn)
	}
	if err := await(ctx, ready); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return frozen, fn(ctx)
}

// quiet decides whether to freeze the box for still. If so, it marks the box as frozen, and returns the
// connection. Otherwise frozen reports that the box is frozen already. The box's lock op is held.
func (e *entry) quiet(ctx context.Context, own int) (conn *sandbox.Box, frozen bool) {
	free := func() bool { return e.box.ready() && e.holds <= own && !e.box.noFreeze }
	e.box.mu.Lock()
	conn, frozen = e.box.conn, e.box.connected() && e.box.frozen
	able := free()
	e.box.mu.Unlock()
	if !able || !e.box.backend.canFreeze(ctx) {
		return nil, frozen
	}
	e.box.mu.Lock()
	if able = free(); able {
		e.box.moving, e.box.frozen = true, true
	}
	e.box.mu.Unlock()
	if !able {
		return nil, false
	}
	e.unreserve() // moving and frozen prevent claims from now on
	return conn, false
}

// Rest returns the state of a box in which nothing runs, the zero Rest if the box itself does not
// run. ok is false if a process lives or a call runs in the box, or if that cannot be found out.
func (p *Pool) Rest(ctx context.Context, id holdfast.BoxID) (r sandbox.Rest, ok bool) {
	p.core.mu.Lock()
	e := p.roster.boxes[id]
	if e == nil || !e.box.running {
		p.core.mu.Unlock()
		return r, true
	}
	conn, connected := e.box.conn, e.box.connected()
	p.core.mu.Unlock()
	if !connected {
		return r, false
	}
	return atRest(ctx, conn)
}

func atRest(ctx context.Context, conn *sandbox.Box) (sandbox.Rest, bool) {
	ctx, cancel := context.WithTimeout(ctx, courtesy)
	defer cancel()
	return conn.Rest(ctx)
}

// suspendWithin freezes the box once ready is closed, and reports whether that succeeded in time.
func (e *entry) suspendWithin(ctx context.Context, most time.Duration, ready <-chan struct{}, conn *sandbox.Box) bool {
	err := e.box.suspend(ctx, conn, stillReason, most, ready)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		e.box.mu.Lock()
		e.box.noFreeze = true
		e.box.mu.Unlock()
	}
	return err == nil
}

// thawAfter runs fn and thaws the box: when fn returns, and at the latest after most. frozen
// reports that the box was frozen until fn returned.
func (l *life) thawAfter(ctx context.Context, conn *sandbox.Box, most time.Duration, fn func(context.Context) error) (frozen bool, err error) {
	short, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	thawed := make(chan error, 1)
	go func() {
		<-short.Done()
		thawed <- l.thaw(context.WithoutCancel(ctx), conn)
	}()
	err = fn(short)
	frozen = short.Err() == nil
	cancel()
	return frozen, errors.Join(err, <-thawed)
}
