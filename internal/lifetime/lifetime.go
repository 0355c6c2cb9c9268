// Package lifetime is how far a server is between its start and its end, with the goroutines that
// belong to it.
//
// The engine owns one Life. It imports the vocabulary. Invariant: once the end has begun no new turn
// is taken, and Close returns only when every goroutine that was started here has ended.
package lifetime

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Life is how far the server is between its start and its end, and its goroutines.
type Life struct {
	log *slog.Logger
	// Base ends when the engine lets go of its turns; nil before Begin.
	Base  context.Context
	letGo context.CancelFunc
	// Leaving is closed when the server begins to end; Started when a start has taken up the
	// turns that were left.
	Leaving, Started chan struct{}
	// Turns are the goroutines that run turns; Hooks those that run hooks for which no turn waits;
	// Rest all others, as the watchdog.
	Turns, Hooks, Rest Crew

	mu     sync.Mutex
	drain  bool
	detach bool
}

// New makes a Life that has not begun.
func New(log *slog.Logger) *Life {
	return &Life{log: log, Leaving: make(chan struct{}), Started: make(chan struct{})}
}

// Begin begins the life; it ends with ctx or LetGo.
func (l *Life) Begin(ctx context.Context) { l.Base, l.letGo = context.WithCancel(ctx) }

// LetGo ends Base.
func (l *Life) LetGo() {
	if l.letGo != nil {
		l.letGo()
	}
}

// CloseAll takes no goroutine from here on.
func (l *Life) CloseAll() {
	l.Turns.Close()
	l.Hooks.Close()
	l.Rest.Close()
}

// Leave begins the end: no new turn is taken from here on. With detach those that run are let go.
func (l *Life) Leave(detach bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.drain {
		close(l.Leaving)
	}
	l.drain = true
	l.detach = l.detach || detach
}

// Ends reports whether the end has begun.
func (l *Life) Ends() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drain
}

// Draining refuses new work once the end has begun.
func (l *Life) Draining() error {
	if l.Ends() {
		return holdfast.Errorf(holdfast.KindUnavailable, "turn", "the server is shutting down").
			WithHint("retry when it is back: nothing was recorded")
	}
	return nil
}

// Detached reports whether the engine has let go of its turns.
func (l *Life) Detached() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.detach || l.Base != nil && l.Base.Err() != nil
}

// The pauses between two tries of what the store refuses.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Insist repeats a commit that the store refuses until it succeeds. It reports false when the
// server shuts down first: then the log stays as it is, for the next start.
func (l *Life) Insist(id holdfast.SessionID, what string, do func() error) bool {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if l.Detached() {
			return false
		}
		err := do()
		if err == nil {
			return true
		}
		l.log.Error(what, "session_id", id, "error", err)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-l.Leaving:
			t.Stop()
			return false
		case <-l.Base.Done():
			t.Stop()
			return false
		}
	}
}

// Wait waits until all goroutines have ended. A crew that does not end before ctx is unavailable.
func (l *Life) Wait(ctx context.Context) error {
	var first error
	for _, c := range []*Crew{&l.Turns, &l.Hooks, &l.Rest} {
		if err := c.Wait(ctx); err != nil && first == nil {
			first = holdfast.Errorf(holdfast.KindUnavailable, "close", "a turn does not end: %w", err)
		}
	}
	return first
}

// LeftToNextStart is the error of a call whose turn goes on when the server is back.
func LeftToNextStart(op string) error {
	return holdfast.Errorf(holdfast.KindUnavailable, op, "the server is shutting down: the turn goes on at its next start").
		WithHint("retry when it is back")
}

// Crew are goroutines that somebody may wait for. Unlike a WaitGroup it takes
// newcomers while it is waited for, and none once it is closed. The zero value
// is ready.
type Crew struct {
	mu     sync.Mutex
	n      int
	closed bool
	// idle is closed when n falls to 0; nil while nobody waits.
	idle chan struct{}
}

// Run starts fn, unless the crew is closed; it reports whether it did.
func (c *Crew) Run(fn func()) bool {
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

func (c *Crew) left() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// Close takes no newcomer from here on.
func (c *Crew) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// Wait returns when no goroutine of the crew runs, or with ctx's cause.
func (c *Crew) Wait(ctx context.Context) error {
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
