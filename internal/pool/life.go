package pool

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Deadlines for work that the pool does without a caller, or that must not use up the caller's patience.
const (
	helloTimeout = 10 * time.Second
	actTimeout   = 30 * time.Second
	courtesy     = 3 * time.Second
)

// StopGrace is the usual time between SIGTERM and SIGKILL for the processes of a box that is stopped. Callers of Stop
// may choose another.
const StopGrace = 10 * time.Second

// life is one box as the driver runs it: it starts, connects, freezes, thaws and stops the box,
// and emits its events. It does not record who uses the box.
//
// op must be held for every method, except those whose comments say otherwise. mu must not be
// held, unless the method's comment says that it is.
type life struct {
	id      holdfast.BoxID
	backend *backend
	// op is a lock: it is held while a goroutine does I/O on the box or emits its events.
	op chan struct{}

	// mu is the pool's lock: it guards all fields below and is never held during I/O or a
	// callback.
	mu *sync.Mutex
	// conn is the latest connection to the box's boxd, which may be broken; nil while there was none or it was closed.
	// running is true while the pool assumes that the box runs, connected or not. boot is the id of
	// its last known start.
	conn    *sandbox.Box
	running bool
	boot    string
	// made is the shape (walls and settings) with which the running box was started.
	made shape
	// adopted: the box ran before this pool began; its first connection, still to come, emits no start event.
	adopted bool
	// hung: boxd does not answer, so the box is stopped instead of connected to at its next use.
	hung bool
	// frozen: the box's processes are frozen. moving: a freeze or stop is in progress, and the box must
	// not be claimed. noFreeze: the driver failed to freeze the box, and the pool does not try again.
	frozen, moving, noFreeze bool
	// hits are the box's counters of memory and process limits that events have reported so far.
	hits hits
	// claimed: somebody has claimed the box since it was started here, or it was adopted.
	claimed bool
	// usedAt is when the box was last used, connected or started.
	usedAt time.Time
}

func newLife(id holdfast.BoxID, b *backend, mu *sync.Mutex) life {
	return life{id: id, backend: b, op: make(chan struct{}, 1), mu: mu}
}

// lock takes op. No other method of life takes it, except close.
func (l *life) lock(ctx context.Context) error {
	select {
	case l.op <- struct{}{}:
		return nil
	default:
	}
	select {
	case l.op <- struct{}{}:
		return nil
	case <-ctx.Done():
		return gaveUp(ctx)
	}
}

func (l *life) unlock() { <-l.op }

// connected reports whether the connection is open; mu is held, the lock op need not be.
func (l *life) connected() bool {
	if l.conn == nil {
		return false
	}
	select {
	case <-l.conn.Done():
		return false
	default:
		return true
	}
}

// ready reports whether the box can be used without waking it; mu is held, the lock op need not be.
func (l *life) ready() bool { return !l.frozen && !l.moving && l.connected() }

// walled reports whether the running box was started with the wanted walls and the wanted tree, and all walls are in
// force; mu is held, the lock op need not be.
func (l *life) walled(want shape) bool {
	return l.made.walls == want.walls && l.made.tree == want.tree && (want.walls == "" || l.backend.wallsHold(l.id))
}

// wake makes a running box ready: it thaws it or connects again. It returns false if the box does
// not run.
func (l *life) wake(ctx context.Context) (ready bool, err error) {
	l.mu.Lock()
	conn, connected, frozen, running := l.conn, l.connected(), l.frozen, l.running
	l.mu.Unlock()
	if connected && frozen {
		err := l.thaw(ctx, conn)
		l.mu.Lock()
		connected = l.connected()
		l.mu.Unlock()
		switch {
		case connected && (!errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil):
			return err == nil, err
		case connected:
			l.doubt()
		}
	}
	if !running {
		return false, nil
	}
	if err := l.reconnect(ctx, 2); !holdfast.IsKind(err, holdfast.KindNotFound) {
		return err == nil, err
	}
	return false, nil
}

// start makes the driver start the box, and connects to it. If connecting fails, start tries once more with a new box,
// because nothing has run in the first one. It does not try again if ctx has ended or another server has the box.
func (l *life) start(ctx context.Context, spec sandbox.Spec) error {
	for try := 1; ; try++ {
		began := time.Now()
		info, err := l.backend.driver.Ensure(ctx, spec)
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.running, l.usedAt, l.made, l.claimed = true, time.Now(), madeAs(info), false
		l.mu.Unlock()
		conn, err := l.connect(ctx, false)
		if err == nil {
			l.started(conn, info, began)
			l.attach(ctx, conn)
			return nil
		}
		// The box of a caller that gave up, or of another server, is not stopped: the next
		// Acquire or the idle timer finds it.
		if ctx.Err() != nil || holdfast.IsKind(err, holdfast.KindConflict) {
			return err
		}
		if serr := l.backend.driver.Stop(ctx, l.id); serr != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, "pool", "box %s did not answer after its start (%v) and cannot be stopped: %w", holdfast.Quote(string(l.id)), err, serr)
		}
		l.mu.Lock()
		l.running = false
		l.mu.Unlock()
		if try == 2 {
			return holdfast.Errorf(holdfast.KindUnavailable, "pool", "box %s was started twice and did not answer: %w", holdfast.Quote(string(l.id)), err).
				WithHint("holdfast doctor shows what is missing on this machine")
		}
	}
}

// adopt connects to a box that a former server left running. A box that does not answer soon is
// left to the next Acquire, so that the start of the server does not wait for it. adopt returns a
// conflict, because that means that a newer server owns the boxes.
func (l *life) adopt(ctx context.Context) error {
	soon, cancel := context.WithTimeout(ctx, courtesy)
	defer cancel()
	err := l.reconnect(soon, 1)
	if holdfast.IsKind(err, holdfast.KindConflict) || ctx.Err() != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
		return err
	}
	return nil
}

// inherit records what the driver reports of a box that a former server left running.
func (l *life) inherit(info sandbox.Info) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running, l.adopted, l.frozen, l.made = true, true, info.Frozen, madeAs(info)
	l.usedAt, l.claimed = time.Now(), true
}

// remove stops the box and removes the driver's records of it.
func (l *life) remove(ctx context.Context) error {
	if err := l.stop(ctx, holdfast.BoxEnded{Reason: "removed"}, 0); err != nil {
		return err
	}
	return l.backend.driver.Remove(ctx, l.id)
}

// close takes op and closes the connection; with stop it stops the box too.
func (l *life) close(ctx context.Context, stop bool) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	if stop {
		return l.stop(ctx, holdfast.BoxEnded{Reason: "the server shut down"}, StopGrace)
	}
	return l.detach()
}
