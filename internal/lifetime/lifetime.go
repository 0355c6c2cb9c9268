// Package lifetime tracks a server between its start and its end, with its goroutines.
//
// The engine owns one Life. It imports the vocabulary. Invariant: once the end has begun no new
// turn is accepted, and Wait returns nil only when every goroutine that was started here has ended.
package lifetime

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Life is the state of a server between its start and its end, with its goroutines.
type Life struct {
	log *slog.Logger
	// Base is the context of turns and background work. It is cancelled when the engine abandons its
	// turns; nil before Begin.
	Base  context.Context
	letGo context.CancelFunc
	// Leaving is closed when the server begins to shut down. The engine closes Started when its start has continued
	// the open turns.
	Leaving, Started chan struct{}
	// Turns runs the goroutines of turns, Hooks those of hooks that no turn waits for, and Rest all
	// others, such as the watchdog.
	Turns, Hooks, Rest Crew

	mu     sync.Mutex
	drain  bool
	detach bool
}

// New returns a Life; Begin starts it.
func New(log *slog.Logger) *Life {
	return &Life{log: log, Leaving: make(chan struct{}), Started: make(chan struct{})}
}

// Begin sets Base, which ends with ctx or LetGo.
func (l *Life) Begin(ctx context.Context) { l.Base, l.letGo = context.WithCancel(ctx) }

// LetGo cancels Base.
func (l *Life) LetGo() {
	if l.letGo != nil {
		l.letGo()
	}
}

// CloseAll makes the three crews Turns, Hooks and Rest refuse new goroutines.
func (l *Life) CloseAll() {
	l.Turns.Close()
	l.Hooks.Close()
	l.Rest.Close()
}

// Leave begins the shutdown: from then on Draining returns an error, so that no new turn is accepted. If detach is
// true, Detached reports true, so that running turns are abandoned.
func (l *Life) Leave(detach bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.drain {
		close(l.Leaving)
	}
	l.drain = true
	l.detach = l.detach || detach
}

// Ends reports whether the shutdown has begun.
func (l *Life) Ends() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drain
}

// Draining returns an error once the shutdown has begun.
func (l *Life) Draining() error {
	if l.Ends() {
		return holdfast.Errorf(holdfast.KindUnavailable, "turn", "the server is shutting down").
			WithHint("retry when the server is back: nothing of the request was recorded")
	}
	return nil
}

// Detached reports whether the engine has abandoned its turns.
func (l *Life) Detached() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.detach || l.Base != nil && l.Base.Err() != nil
}

// The first and the longest pause between two tries of a commit that the store refused.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Insist calls do, which commits to a session's log, until it succeeds. It logs each failure with the text what. It
// returns false if the server shuts down first: then the next start continues from the session's log as it is.
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

// Wait waits until all goroutines have ended. It fails with unavailable if ctx ends first.
func (l *Life) Wait(ctx context.Context) error {
	var first error
	for _, c := range []*Crew{&l.Turns, &l.Hooks, &l.Rest} {
		if err := c.Wait(ctx); err != nil && first == nil {
			first = holdfast.Errorf(holdfast.KindUnavailable, "close", "turns or background work did not end in time: %w", err)
		}
	}
	return first
}

// LeftToNextStart returns the error of a call whose turn continues at the server's next start.
func LeftToNextStart(op string) error {
	return holdfast.Errorf(holdfast.KindUnavailable, op, "the server is shutting down: the turn continues at the server's next start").
		WithHint("retry when the server is back")
}

// Await waits until done is closed. It returns LeftToNextStart if over is closed first, and ctx's cause if ctx ends.
func Await(ctx context.Context, op string, done, over <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-over:
		return LeftToNextStart(op)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Crew is a group of goroutines to wait for. Unlike a WaitGroup it accepts new ones during a wait,
// and it refuses new ones once closed. The zero value is ready.
type Crew struct {
	mu     sync.Mutex
	n      int
	closed bool
	// n is the number of goroutines that run. idle is closed when n falls to 0; it is nil while no Wait waits.
	idle chan struct{}
}

// Run starts fn in a goroutine and returns true; it returns false if the crew is closed.
func (c *Crew) Run(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.n++
	go func() {
		defer c.left()
		deepen(0)
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

// Close makes the crew refuse new goroutines.
func (c *Crew) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// Wait waits until no goroutine of the crew runs; it returns ctx's cause if ctx ends first.
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

// deepen grows the calling goroutine's stack once while it is almost empty. Otherwise the goroutines of a crew,
// whose calls nest deeply, would copy the stack at each doubling.
//
//go:noinline
func deepen(n int) byte {
	var room [24 << 10]byte
	room[n&0xfff] = 1
	return room[n*7&0xfff]
}
