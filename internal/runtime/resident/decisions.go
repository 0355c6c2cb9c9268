package resident

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errStopped is the error of Decisions.Call after the end of its run.
var errStopped = errors.New("the run of the turn has ended")

// Then is the second half of a piece of work: a function that runs on the goroutine which reads the agent's output.
type Then func(ctx context.Context) error

// Decisions runs work while the agent's output is read: permission decisions, hooks, and tools of the
// server. Work with the same key runs in the order in which it was added. The second half of each piece
// of work runs on the goroutine that reads the agent's output. Make one with NewDecisions.
type Decisions struct {
	// Made are second halves that need the agent and wait until the run is attached to it again.
	Made []Then

	done, apart chan Then
	quit        chan struct{}
	order       map[string]chan struct{}
	wg          sync.WaitGroup
}

// NewDecisions makes Decisions without any work.
func NewDecisions() *Decisions {
	return &Decisions{
		done: make(chan Then, 16), apart: make(chan Then, 16), quit: make(chan struct{}), order: map[string]chan struct{}{},
	}
}

// Done returns the channel of the second halves that need the agent, which the goroutine that reads
// the agent's output has to run.
func (d *Decisions) Done() <-chan Then { return d.done }

// Apart returns the channel of the second halves that do not need the agent: those of failed work,
// and those of Call. The same goroutine has to run them, also while it is not attached to the agent.
func (d *Decisions) Apart() <-chan Then { return d.apart }

// Go runs do on a new goroutine, after the earlier work with the same key, and passes the Then
// that it returns to Done, or, with an error, to Apart. Only the goroutine that reads the agent's
// output may call Go.
func (d *Decisions) Go(key string, do func() (Then, error)) {
	before, over := d.order[key], make(chan struct{})
	d.order[key] = over
	d.wg.Go(func() {
		defer close(over)
		if before != nil {
			<-before
		}
		to := d.done
		then, err := do()
		if err != nil {
			to = d.apart
		}
		d.hand(to, then)
	})
}

// After passes then to the channel of Done after a delay, unless Stop is called before.
func (d *Decisions) After(wait time.Duration, then Then) {
	d.wg.Go(func() {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
			d.hand(d.done, then)
		case <-d.quit:
		}
	})
}

func (d *Decisions) hand(to chan Then, then Then) {
	select {
	case to <- then:
	case <-d.quit:
	}
}

// Call passes do to the channel of Apart, waits until do has run and returns its error. It returns another error if
// Stop is called or ctx ends before. Work that was started with Go may use Call.
func (d *Decisions) Call(ctx context.Context, do Then) error {
	failed := make(chan error, 1)
	d.hand(d.apart, func(ctx context.Context) error {
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

// Stop waits until no work runs any more; the caller must have ended the context of the work.
// Second halves that have not run are dropped.
func (d *Decisions) Stop() {
	close(d.quit)
	d.wg.Wait()
}
