package resident

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errStopped is the error of a decision that comes after the end of its run.
var errStopped = errors.New("the run has ended")

// Then is the second half of some work: it runs on the goroutine that reads the agent.
type Then func(ctx context.Context) error

// Decisions runs work while the agent is read: permission decisions, hooks, tools of the
// server. Work of one key runs in the order in which it was added. Its second
// half runs on the goroutine that reads. Make one with NewDecisions.
type Decisions struct {
	done  chan Then
	quit  chan struct{}
	order map[string]chan struct{}
	wg    sync.WaitGroup
}

// NewDecisions makes Decisions without any work.
func NewDecisions() *Decisions {
	return &Decisions{done: make(chan Then, 16), quit: make(chan struct{}), order: map[string]chan struct{}{}}
}

// Done returns the channel of what is to run on the goroutine that reads.
func (d *Decisions) Done() <-chan Then { return d.done }

// Go runs do on a goroutine of its own, after the earlier work of the same key. The
// goroutine that reads calls it.
func (d *Decisions) Go(key string, do func() Then) {
	before, over := d.order[key], make(chan struct{})
	d.order[key] = over
	d.wg.Go(func() {
		defer close(over)
		if before != nil {
			<-before
		}
		d.hand(do())
	})
}

// After runs then on the goroutine that reads, when some time has passed.
func (d *Decisions) After(wait time.Duration, then Then) {
	d.wg.Go(func() {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
			d.hand(then)
		case <-d.quit:
		}
	})
}

func (d *Decisions) hand(then Then) {
	select {
	case d.done <- then:
	case <-d.quit:
	}
}

// Call runs do on the goroutine that reads and waits for its error. Work that was
// started with Go may call it.
func (d *Decisions) Call(ctx context.Context, do Then) error {
	failed := make(chan error, 1)
	d.hand(func(ctx context.Context) error {
		failed <- do(ctx)
		return nil
	})
	select {
	case err := <-failed:
		return err
	case <-d.quit:
		return errStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stop waits until no work runs any more. The context of the work has to end before. The
// second halves are dropped.
func (d *Decisions) Stop() {
	close(d.quit)
	d.wg.Wait()
}
