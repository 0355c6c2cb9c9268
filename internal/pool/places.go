package pool

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
)

// lineLooks is how often the first in the line tries again without being woken: a call without a
// claim ends without a notification, and until then its box cannot be evicted.
const lineLooks = time.Second

// places limits how many boxes run at once, and queues the turns that wait for a place. The
// pool's lock must be held for every method except wait and leave.
type places struct {
	core *core
	most int
	// taken holds the boxes that have a place. They may be more than most, because boxes that a
	// former server left continue to run.
	taken map[holdfast.BoxID]bool
	line  line
}

func (p *places) has(box holdfast.BoxID) bool { return p.taken[box] }

// keep gives a place to a box that is already running.
func (p *places) keep(box holdfast.BoxID) { p.taken[box] = true }

func (p *places) free(box holdfast.BoxID) { delete(p.taken, box) }

// take gives a box a place if one is free and no other box is before it in the line, and reports
// whether it has one.
func (p *places) take(box holdfast.BoxID) bool {
	if !p.taken[box] && len(p.taken) < p.most && p.mayHave(box) {
		p.taken[box] = true
	}
	return p.taken[box]
}

// pass takes the place of the box from. It gives the box to a place, unless as many boxes as allowed still have one.
func (p *places) pass(from, to holdfast.BoxID) {
	delete(p.taken, from)
	if len(p.taken) < p.most {
		p.taken[to] = true
	}
}

// vacant reports whether a place is free and no turn waits for it.
func (p *places) vacant() bool { return len(p.line) == 0 && len(p.taken) < p.most }

// mayHave reports whether a free place may be given to the box: the line is empty, or the box is
// the first in it.
func (p *places) mayHave(box holdfast.BoxID) bool { return len(p.line) == 0 || p.line[0].box == box }

// full returns the error that no further box may start.
func (p *places) full() error {
	return holdfast.Errorf(holdfast.KindUnavailable, "pool", "all %d boxes are running, and no more may run: %w", p.most, holdfast.ErrFull).
		WithHint("retry when a turn has ended, or raise max_boxes")
}

// wake makes the first in the line try again, because a place may have become free.
func (p *places) wake() {
	if len(p.line) > 0 {
		p.line[0].signal()
	}
}

// wait waits until the caller is first in the line and a place may be free. w is the caller's
// waiter from its last call, nil at the first. The caller then tries to start its box. If it
// finds no place it calls wait again; in the end it must call leave. queued receives the position
// each time it changes.
func (p *places) wait(ctx context.Context, box holdfast.BoxID, w *waiter, queued func(int)) (*waiter, error) {
	woken := w == nil
	if w == nil {
		w = newWaiter(box)
		p.core.mu.Lock()
		p.line = append(p.line, w)
		p.core.mu.Unlock()
	}
	look := time.NewTicker(lineLooks)
	defer look.Stop()
	for {
		p.core.mu.Lock()
		err, position := p.core.open(), p.line.position(w)
		p.core.mu.Unlock()
		if err != nil {
			return w, err
		}
		w.tell(position, queued)
		// The first call returns without a wake-up, too: a place may have become free before w was in the line.
		if position == 1 && woken {
			return w, nil
		}
		if err := w.wait(ctx, p.core, look.C); err != nil {
			return w, err
		}
		woken = true
	}
}

// leave takes a waiter out of the line; it does nothing if w is nil.
func (p *places) leave(w *waiter) {
	p.core.mu.Lock()
	defer p.core.mu.Unlock()
	p.line.leave(w)
}
