package pool

import (
	"context"
	"sync"

	"github.com/holdfast-run/holdfast"
)

// core is the state that the parts of a pool share: the lock, whether the pool is open, and the goroutines that end
// when the pool closes.
type core struct {
	// mu guards the state of the pool, its parts and its boxes, except that of the disk watcher. It is never held
	// during I/O or a callback.
	mu    sync.Mutex
	phase phase
	// ctx is canceled when the pool closes; it is set when the pool opens.
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

// begin opens the pool, once. Its context does not end with ctx, because the pool outlives the call that starts it.
func (c *core) begin(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != phaseNew {
		return holdfast.Errorf(holdfast.KindInternal, "pool.start", "the pool of boxes was started twice")
	}
	c.phase = phaseOpen
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return nil
}

// end closes the pool and waits for its goroutines. It returns false if the pool was not open.
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
	return holdfast.Errorf(holdfast.KindUnavailable, "pool", "the server does not run boxes now: it is starting or shutting down").
		WithHint("retry when the server has started")
}

// spawn runs fn in a goroutine, for which the end of the pool waits. It does nothing if the pool
// is not open. mu is held.
func (c *core) spawn(fn func()) {
	if c.phase == phaseOpen {
		c.work.Go(fn)
	}
}
