package engine

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

// crew are goroutines that somebody may wait for. Unlike a WaitGroup it takes
// newcomers while it is waited for, and none once it is closed. The zero value
// is ready.
type crew struct {
	mu     sync.Mutex
	n      int
	closed bool
	// idle is closed when n falls to 0; nil while nobody waits.
	idle chan struct{}
}

// crews are the goroutines of an engine: those that run turns, those that run hooks for which
// no turn waits, and the rest, as the watchdog.
type crews struct{ turns, hooks, rest crew }

// run starts fn, unless the crew is closed; it says whether it did.
func (c *crew) run(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.n++
	go func() {
		defer c.left()
		fn()
	}()
	return true
}

func (c *crew) left() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

func (c *crew) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// wait returns when nobody works, or with ctx's cause.
func (c *crew) wait(ctx context.Context) error {
	c.mu.Lock()
	if c.n == 0 {
		c.mu.Unlock()
		return nil
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// The pauses between two tries of what the store refuses.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// insist repeats what the store refuses until it is done. It says false when the
// server shuts down first: then the log stays as it is, for the next start.
func (e *Engine) insist(id holdfast.SessionID, what string, do func() error) bool {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if e.detached() {
			return false
		}
		err := do()
		if err == nil {
			return true
		}
		e.cfg.Log.Error(what, "session_id", id, "error", err)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-e.leaving:
			t.Stop()
			return false
		case <-e.base.Done():
			t.Stop()
			return false
		}
	}
}
