package pool

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// entry is what the pool knows of one box.
type entry struct {
	id holdfast.BoxID
	// op is held by whoever does I/O on the box or emits its events.
	op chan struct{}

	// All below is guarded by Pool.mu.

	// box is the connected box; nil when there is none. running says that the
	// box is believed to run, connected or not; boot is its last known life.
	box     *sandbox.Box
	running bool
	boot    string
	// walls is the hash of the walls that the running box was started with.
	walls string
	// adopted: it ran before this pool did, so its start is no event.
	adopted bool
	// hung: boxd does not answer; the box is stopped before anybody is connected again.
	hung bool
	// slot counts the box against MaxBoxes.
	slot bool
	// frozen: its work leaf stands still. moving: a freeze or stop is under way,
	// nobody may claim it. noFreeze: the driver could not, do not ask again.
	frozen, moving, noFreeze bool
	// acting: the janitor does something; dirty: used since the last look at the
	// counters.
	acting, dirty bool
	checkedAt     time.Time
	// hits are those of the counters that were told.
	hits hits

	// holds are claims, turns those (and granted waiters) that count against
	// MaxTurns; users are slow Acquires under way, refs other operations.
	holds, turns, users, refs int
	queue                     []*waiter
	usedAt                    time.Time
	// failures counts failed starts, failure is the last one.
	failures int
	failure  error
}

func (e *entry) lock(ctx context.Context) error {
	select {
	case e.op <- struct{}{}:
		return nil
	default:
	}
	select {
	case e.op <- struct{}{}:
		return nil
	case <-ctx.Done():
		return gaveUp(ctx)
	}
}

func (e *entry) unlock() { <-e.op }

func (e *entry) connected() bool {
	if e.box == nil {
		return false
	}
	select {
	case <-e.box.Done():
		return false
	default:
		return true
	}
}

func (e *entry) ready() bool { return !e.frozen && !e.moving && e.connected() }

// walled reports whether the running box has the wanted walls, all of them in force.
// p.mu is held.
func (p *Pool) walled(e *entry, hash string) bool {
	return e.walls == hash && (hash == "" || p.guard == nil || p.guard.WallsHold(e.id))
}

// unused: nobody has it nor is about to.
func (e *entry) unused() bool { return e.holds == 0 && e.turns == 0 && e.users == 0 }

func (p *Pool) isOpen() error {
	if p.phase != poolOpen {
		return holdfast.Errorf(holdfast.KindUnavailable, "pool", "the server is not serving boxes").
			WithHint("retry when it has started")
	}
	return nil
}

func (p *Pool) entry(id holdfast.BoxID) *entry {
	e := p.boxes[id]
	if e == nil {
		e = &entry{id: id, op: make(chan struct{}, 1)}
		p.boxes[id] = e
	}
	return e
}

func (p *Pool) claim(e *entry, turn bool) *Hold {
	e.holds++
	return &Hold{Box: e.box, pool: p, e: e, turn: turn}
}

// tidy gives back the slot of a box that does not run and is nobody's, and
// forgets the entry.
func (p *Pool) tidy(e *entry) {
	if len(p.line) > 0 && e.unused() {
		p.line[0].signal()
	}
	if e.running || !e.unused() || e.refs > 0 || len(e.queue) > 0 {
		return
	}
	if e.slot {
		e.slot = false
		p.used--
	}
	if p.boxes[e.id] == e {
		delete(p.boxes, e.id)
	}
}

// waiter is a turn that waits for one of the turns' places in a box, or for a box's
// place on the server.
type waiter struct {
	e       *entry
	granted bool
	news    chan struct{}
	// told is the position that its caller knows.
	told int
}

func (w *waiter) signal() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

func (p *Pool) turnFree(e *entry) bool { return e.turns < p.cfg.MaxTurns && len(e.queue) == 0 }

// takeTurn waits for one of the box's turn places, first come first served.
func (p *Pool) takeTurn(ctx context.Context, e *entry, queued func(int)) error {
	p.mu.Lock()
	if p.turnFree(e) {
		e.turns++
		p.mu.Unlock()
		return nil
	}
	w := &waiter{news: make(chan struct{}, 1)}
	e.queue = append(e.queue, w)
	w.signal()
	p.mu.Unlock()

	told := 0
	for {
		var err error
		select {
		case <-w.news:
		case <-ctx.Done():
			err = gaveUp(ctx)
		}
		p.mu.Lock()
		if err == nil {
			err = p.isOpen()
		}
		granted, position := w.granted, p.position(e, w)
		if err != nil {
			p.leave(e, w)
		}
		p.mu.Unlock()
		if err != nil || granted {
			return err
		}
		if position != told && queued != nil {
			queued(position)
			told = position
		}
	}
}

func (p *Pool) position(e *entry, w *waiter) int {
	for i, o := range e.queue {
		if o == w {
			return i + 1
		}
	}
	return 0
}

func (p *Pool) leave(e *entry, w *waiter) {
	if w.granted {
		p.endTurn(e)
		return
	}
	if i := p.position(e, w); i > 0 {
		e.queue = append(e.queue[:i-1], e.queue[i:]...)
		for _, o := range e.queue {
			o.signal()
		}
	}
}

// endTurn frees a place and hands it to the first in the queue.
func (p *Pool) endTurn(e *entry) {
	e.turns--
	for e.turns < p.cfg.MaxTurns && len(e.queue) > 0 {
		w := e.queue[0]
		e.queue = append(e.queue[:0:0], e.queue[1:]...)
		w.granted = true
		e.turns++
		w.signal()
	}
	for _, w := range e.queue {
		w.signal()
	}
}

func sessionOf(id holdfast.BoxID) (holdfast.SessionID, bool) {
	s, ok := strings.CutPrefix(string(id), "s-")
	return holdfast.SessionID(s), ok
}

func gaveUp(ctx context.Context) error {
	return holdfast.Errorf(holdfast.KindUnavailable, "pool", "given up while waiting for the box: %w", context.Cause(ctx))
}

// joinErrors keeps the kind and hint of the first failure.
func joinErrors(errs []error) error {
	all := errors.Join(errs...)
	for _, err := range errs {
		if err != nil {
			return holdfast.Errorf(holdfast.KindOf(err), "pool", "%w", all).WithHint("%s", holdfast.HintOf(err))
		}
	}
	return nil
}
