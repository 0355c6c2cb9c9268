package pool

import (
	"context"
	"sync"

	"github.com/holdfast-run/holdfast"
)

// core is what the parts of a pool share: the lock, whether the pool is open, and the
// goroutines that end with it.
type core struct {
	// mu guards all state of the pool, of its parts and of its boxes. It is never held over
	// I/O or a callback.
	mu    sync.Mutex
	phase phase
	// ctx ends with the pool; it is set when the pool opens.
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
}

type phase int

const (
	phaseNew phase = iota + 1
	phaseOpen
	phaseClosed
)

// begin opens the pool, once. The pool outlives the call that starts it.
func (c *core) begin(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != phaseNew {
		return holdfast.Errorf(holdfast.KindInternal, "pool.start", "started twice")
	}
	c.phase = phaseOpen
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return nil
}

// end closes the pool and waits for its goroutines. It returns false for a pool that was not
// open.
func (c *core) end() bool {
	c.mu.Lock()
	was := c.phase
	c.phase = phaseClosed
	c.mu.Unlock()
	if was != phaseOpen {
		return false
	}
	c.cancel()
	c.work.Wait()
	return true
}

// open returns an error unless the pool is open; mu is held.
func (c *core) open() error {
	if c.phase == phaseOpen {
		return nil
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "pool", "the server is not serving boxes").
		WithHint("retry when it has started")
}

// spawn runs a goroutine that the end of the pool waits for. It does nothing once the pool is
// closed. mu is held.
func (c *core) spawn(fn func()) {
	if c.phase == phaseOpen {
		c.work.Go(fn)
	}
}
