package pool

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// turns limits how many turns use one box at once, and queues those that wait. In a box that sessions share it admits
// only claims with the same walls at a time, because a box has one set of walls. The pool's lock must be held for
// every method except enter.
type turns struct {
	core *core
	// most is how many turns may use the box at once, taken how many use it now. others counts the other claims.
	most, taken, others int
	// walls is the hash of the walls (see wallsOf) that all claims of the box have, if there are any claims.
	walls string
	queue line
}

// wallsOf returns the hash of the walls that must be equal among the claims of a box; empty for a box of one session.
// want is the shape of spec.
func wallsOf(spec sandbox.Spec, want shape) string {
	if !spec.Shared {
		return ""
	}
	return want.walls
}

// fits reports whether all claims of the box have the given walls.
func (t *turns) fits(walls string) bool { return t.taken+t.others == 0 || t.walls == walls }

// take counts a claim if it fits. Otherwise it does nothing and returns false: a turn would have to
// wait, and any other claim is refused.
func (t *turns) take(walls string, turn bool) bool {
	if !t.fits(walls) || turn && (t.taken == t.most || len(t.queue) > 0) {
		return false
	}
	t.add(walls, turn)
	return true
}

func (t *turns) add(walls string, turn bool) {
	t.walls = walls
	if turn {
		t.taken++
	} else {
		t.others++
	}
}

// enter counts a claim: a turn waits for its place if necessary, first come first served; queued receives the position
// each time it changes. Another claim that does not fit is busy.
func (t *turns) enter(ctx context.Context, box holdfast.BoxID, walls string, turn bool, queued func(int)) error {
	t.core.mu.Lock()
	if t.take(walls, turn) {
		t.core.mu.Unlock()
		return nil
	}
	if !turn {
		t.core.mu.Unlock()
		return holdfast.Errorf(holdfast.KindBusy, "box", "another session, with other path rules, is using the shared box %s", holdfast.Quote(string(box))).
			WithHint("try again when the turn or command of the other session has ended; with limits.shared: off each session of a workspace has a box of its own")
	}
	w := newWaiter("")
	w.walls = walls
	t.queue = append(t.queue, w)
	w.signal()
	t.core.mu.Unlock()
	for {
		err := w.wait(ctx, t.core, nil)
		t.core.mu.Lock()
		if err == nil {
			err = t.core.open()
		}
		granted, position := w.granted, t.queue.position(w)
		if err != nil {
			t.leave(w)
		}
		t.core.mu.Unlock()
		if err != nil || granted {
			return err
		}
		w.tell(position, queued)
	}
}

// leave takes a waiter out of the queue, or gives its place back if it was granted one.
func (t *turns) leave(w *waiter) {
	if w.granted {
		t.taken--
	} else {
		t.queue.leave(w)
	}
	t.admit()
}

// end ends a claim.
func (t *turns) end(turn bool) {
	if turn {
		t.taken--
	} else {
		t.others--
	}
	t.admit()
}

// admit lets the first turns in the queue use the box, as long as there is room for them.
func (t *turns) admit() {
	for len(t.queue) > 0 && t.taken < t.most && t.fits(t.queue[0].walls) {
		w := t.queue[0]
		t.add(w.walls, true)
		w.granted = true
		w.signal()
		t.queue.leave(w)
	}
}
