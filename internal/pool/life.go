package pool

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Deadlines of what the pool does without a caller, or without the caller's patience.
const (
	helloTimeout = 10 * time.Second
	actTimeout   = 30 * time.Second
	courtesy     = 3 * time.Second
	idleGrace    = 2 * time.Second
)

// life is one box as the driver runs it: it starts, connects, freezes, thaws and stops the
// box, and tells what happened. It does not know who uses the box.
//
// op is held for every method but those that say otherwise. A method may be called only
// without mu, unless its comment says that mu is held.
type life struct {
	id      holdfast.BoxID
	backend *backend
	// op is held by whoever does I/O on the box or tells of it.
	op chan struct{}

	// mu is the pool's lock: it guards all below and is never held over I/O or a
	// callback.
	mu *sync.Mutex
	// conn is the connection to the box; nil when there is none. running: the box is believed
	// to run, connected or not. boot is the id of its last known start.
	conn    *sandbox.Box
	running bool
	boot    string
	// walls is the hash of the walls that the running box was started with.
	walls string
	// adopted: it ran before this pool did, so its start is no event.
	adopted bool
	// hung: boxd does not answer; the box is stopped before anybody is connected again.
	hung bool
	// frozen: its work leaf stands still. moving: a freeze or stop is under way, nobody may
	// claim it. noFreeze: the driver could not freeze it; it is not tried again.
	frozen, moving, noFreeze bool
	// hits are those of the counters that were told.
	hits hits
	// usedAt is when the box was last used, connected or started.
	usedAt time.Time
}

func newLife(id holdfast.BoxID, b *backend, mu *sync.Mutex) life {
	return life{id: id, backend: b, op: make(chan struct{}, 1), mu: mu}
}

// lock takes op, which no method before it held.
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

// connected reports whether the connection holds; mu is held, op need not be.
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

// ready reports whether the box can be used as it is; mu is held, op need not be.
func (l *life) ready() bool { return !l.frozen && !l.moving && l.connected() }

// walled reports whether the running box has the wanted walls, all of them in force; mu is
// held, op need not be.
func (l *life) walled(hash string) bool {
	return l.walls == hash && (hash == "" || l.backend.wallsHold(l.id))
}

// wake makes a box that runs ready: it thaws it, or connects again. It returns false if the
// box does not run.
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

// start has the driver start the box, and connects to it. Nothing ran in it yet, so a
// connection that breaks before the hello is tried once more with a new box.
func (l *life) start(ctx context.Context, spec sandbox.Spec) error {
	for try := 1; ; try++ {
		began := time.Now()
		info, err := l.backend.driver.Ensure(ctx, spec)
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.running, l.usedAt, l.walls = true, time.Now(), info.Walls
		l.mu.Unlock()
		conn, err := l.connect(ctx, false)
		if err == nil {
			l.started(conn, info, began)
			l.attach(ctx, conn)
			return nil
		}
		// The box of a caller who gave up, or of another server, is not ended: the
		// next Acquire finds it, or the idle timer.
		if ctx.Err() != nil || holdfast.IsKind(err, holdfast.KindConflict) {
			return err
		}
		if serr := l.backend.driver.Stop(ctx, l.id); serr != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, "pool", "box %s did not answer (%v) and cannot be stopped: %w", holdfast.Quote(string(l.id)), err, serr)
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

// adopt connects to a box that a former server left running. A box that does not answer soon
// is left to the next Acquire, so that the start of the server does not wait for it; a
// conflict is returned, because a newer server owns the boxes.
func (l *life) adopt(ctx context.Context) error {
	soon, cancel := context.WithTimeout(ctx, courtesy)
	defer cancel()
	err := l.reconnect(soon, 1)
	if holdfast.IsKind(err, holdfast.KindConflict) || ctx.Err() != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
		return err
	}
	return nil
}

// inherit notes what the driver says of a box that a former server left running.
func (l *life) inherit(info sandbox.Info) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running, l.adopted, l.frozen, l.walls = true, true, info.Frozen, info.Walls
	l.usedAt = time.Now()
}

// remove stops the box and removes the driver's records of it.
func (l *life) remove(ctx context.Context) error {
	if err := l.stop(ctx, holdfast.BoxEnded{Reason: "removed"}, 0); err != nil {
		return err
	}
	return l.backend.driver.Remove(ctx, l.id)
}

// close takes op and closes the connection, or with stop ends the box, too.
func (l *life) close(ctx context.Context, stop bool) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	if stop {
		return l.stop(ctx, holdfast.BoxEnded{Reason: "the server shut down"}, idleGrace)
	}
	return l.detach()
}
