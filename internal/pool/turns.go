package pool

import "context"

// turns are the places of turns in one box, and the turns that wait for one. The pool's lock
// is held for every method but enter.
type turns struct {
	core *core
	// most is how many turns may use the box at once, taken how many do.
	most, taken int
	queue       line
}

// free reports whether a turn gets a place without waiting.
func (t *turns) free() bool { return t.taken < t.most && len(t.queue) == 0 }

// enter takes a place, and waits for one, first come first served. queued receives the
// position each time it changes.
func (t *turns) enter(ctx context.Context, queued func(int)) error {
	t.core.mu.Lock()
	if t.free() {
		t.taken++
		t.core.mu.Unlock()
		return nil
	}
	w := newWaiter("")
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

// leave takes a waiter out of the queue, or gives back the place that it was granted.
func (t *turns) leave(w *waiter) {
	if w.granted {
		t.end()
		return
	}
	t.queue.leave(w)
}

// end frees a place and hands it to the first in the queue.
func (t *turns) end() {
	t.taken--
	for t.taken < t.most && len(t.queue) > 0 {
		w := t.queue[0]
		t.taken++
		w.granted = true
		w.signal()
		t.queue.leave(w)
	}
}
