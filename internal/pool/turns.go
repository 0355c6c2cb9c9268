package pool

import "context"

// turns limits how many turns use one box at once, and queues those that wait. The pool's lock
// must be held for every method except enter.
type turns struct {
	core *core
	// most is how many turns may use the box at once, taken how many use it now.
	most, taken int
	queue       line
}

// free reports whether a turn can use the box without waiting.
func (t *turns) free() bool { return t.taken < t.most && len(t.queue) == 0 }

// enter takes a place for a turn, and waits for it if necessary, first come first served. queued
// receives the position each time it changes.
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

// leave takes a waiter out of the queue, or gives its place back if it was granted one.
func (t *turns) leave(w *waiter) {
	if w.granted {
		t.end()
		return
	}
	t.queue.leave(w)
}

// end frees a place and gives it to the first in the queue.
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
