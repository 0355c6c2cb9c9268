package pool

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
)

// lineLooks is how often the first in the line looks for itself: calls that nobody
// holds end without a word, and keep a box from being evicted until then.
const lineLooks = time.Second

// Full is the error of a server that has no place for a box to run in now: all are in
// use, or somebody waits for the next one. Nil means that the box has its place, or that
// one is free or can be taken from an idle box. It starts nothing and asks nobody.
func (p *Pool) Full(id holdfast.BoxID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.boxes[id]; e != nil && e.slot {
		return nil
	}
	if len(p.line) == 0 && (p.used < p.cfg.MaxBoxes || p.victim(nil) != nil) {
		return nil
	}
	return p.full()
}

func (p *Pool) full() error {
	return holdfast.Errorf(holdfast.KindUnavailable, "pool", "all %d boxes are running: %w", p.cfg.MaxBoxes, holdfast.ErrFull).
		WithHint("retry when a turn has ended, or raise max_boxes")
}

// mayHave reports whether nobody else comes before this box when a place is free. p.mu
// is held.
func (p *Pool) mayHave(e *entry) bool { return len(p.line) == 0 || p.line[0].e == e }

// waitForPlace waits until the caller is first in the line and a place may be free; w is
// its place in the line from the last time, nil at first. The caller tries to start its
// box and comes back when that finds no place, and leaves the line in the end.
func (p *Pool) waitForPlace(ctx context.Context, e *entry, w *waiter, queued func(int)) (*waiter, error) {
	woken := w == nil
	if w == nil {
		w = &waiter{e: e, news: make(chan struct{}, 1)}
		p.mu.Lock()
		p.line = append(p.line, w)
		p.mu.Unlock()
	}
	look := time.NewTicker(lineLooks)
	defer look.Stop()
	for {
		p.mu.Lock()
		err := p.isOpen()
		position := slices.Index(p.line, w) + 1
		p.mu.Unlock()
		if err != nil {
			return w, err
		}
		if position != w.told && queued != nil {
			queued(position)
		}
		// Once at first: a place may have become free before this was in the line.
		if w.told = position; position == 1 && woken {
			return w, nil
		}
		select {
		case <-w.news:
		case <-look.C:
		case <-ctx.Done():
			return w, gaveUp(ctx)
		}
		woken = true
	}
}

// leaveLine takes a waiter out of the line and wakes the others, whose positions
// changed. It does nothing if w is nil.
func (p *Pool) leaveLine(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.line, w)
	if w == nil || i < 0 {
		return
	}
	p.line = slices.Delete(p.line, i, i+1)
	for _, o := range p.line {
		o.signal()
	}
}
