package pool

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// freeze freezes the box once its event is recorded and boxd's gate is closed (HZ-10). The box
// must not be used meanwhile: the caller has reserved it, or holds the only claim. If the freeze
// fails, the box goes on.
func (l *life) freeze(ctx context.Context, conn *sandbox.Box) error {
	if !l.backend.canFreeze(ctx) {
		return holdfast.Errorf(holdfast.KindUnavailable, "pool.freeze", "driver %s cannot freeze boxes on this machine", holdfast.Quote(l.backend.name())).
			WithHint("run holdfast doctor to learn why")
	}
	return l.suspend(ctx, conn, "idle", 0, nil)
}

// suspend emits the event of a freeze and makes boxd close its gate meanwhile. Then it waits for ready, unless that is
// nil, and freezes the box within most; 0 sets no limit. If it fails, it thaws the box, or leaves that to the next use.
func (l *life) suspend(ctx context.Context, conn *sandbox.Box, reason string, most time.Duration, ready <-chan struct{}) error {
	l.mu.Lock()
	l.frozen = true
	l.mu.Unlock()
	gated := make(chan error, 1)
	go func() {
		// Do not end this request with ctx: boxd could then close the gate after thaw opened it.
		gctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), helloTimeout)
		defer cancel()
		gated <- conn.Gate(gctx, true)
	}()
	l.backend.emit(Event{Type: holdfast.EventBoxFrozen, Box: l.id, Ended: holdfast.BoxEnded{Box: l.id, Boot: conn.Boot(), Reason: reason}})
	err := <-gated
	if errors.Is(err, context.DeadlineExceeded) {
		l.doubt()
		_ = l.detach()
		return holdfast.Errorf(holdfast.KindUnavailable, "pool.freeze", "box %s was not frozen: it does not answer", holdfast.Quote(string(l.id))).
			WithHint("the next use of the box starts it again")
	}
	if err == nil {
		err = await(ctx, ready)
	}
	if err == nil {
		fctx, cancel := ctx, context.CancelFunc(func() {})
		if most > 0 {
			fctx, cancel = context.WithTimeout(ctx, most)
		}
		err = l.backend.freezer.Freeze(fctx, l.id)
		cancel()
	}
	if err != nil {
		// Undo a freeze that may have happened in part. If that fails too, the box stays marked as
		// frozen, and the next Acquire thaws it.
		_ = l.thaw(context.WithoutCancel(ctx), conn)
	}
	return err
}

// await waits until ready is closed; it returns at once if ready is nil. It returns ctx's cause if ctx ends first.
func await(ctx context.Context, ready <-chan struct{}) error {
	if ready == nil {
		return nil
	}
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// thaw thaws the box and then opens boxd's gate.
func (l *life) thaw(ctx context.Context, conn *sandbox.Box) error {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	if err := l.backend.freezer.Thaw(ctx, l.id); err != nil {
		return err
	}
	if err := conn.Gate(ctx, false); err != nil {
		return err
	}
	l.mu.Lock()
	l.frozen = false
	l.mu.Unlock()
	l.backend.grows() // the box may write again: tell the disk watcher to measure it
	return nil
}

// working reports whether a call runs in the box, other than idle agents (see Config.Resting). In a box without a claim
// such a call has lost its reader, or a former server started it. If boxd does not answer, working returns false.
func (l *life) working(ctx context.Context, conn *sandbox.Box) bool {
	if conn == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, courtesy)
	defer cancel()
	calls, err := conn.Calls(ctx)
	if err != nil {
		return false
	}
	calls = slices.DeleteFunc(calls, func(c wire.CallState) bool { return c.Status != wire.CallRunning })
	if len(calls) == 0 {
		return false
	}
	resting := l.backend.agents(ctx, l.id)
	return slices.ContainsFunc(calls, func(c wire.CallState) bool { return !slices.Contains(resting, c.Call) })
}
