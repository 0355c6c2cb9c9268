package stream

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Config configures Streams. All fields are required.
type Config struct {
	// Ping is how long an event stream stays silent before it sends a comment as a sign of life.
	Ping time.Duration
	// KeyOf returns the id of the key with which the request of ctx was sent, empty for the owner;
	// Revoked reports whether a key was revoked.
	KeyOf   func(ctx context.Context) holdfast.KeyID
	Revoked func(holdfast.KeyID) bool
	Log     *slog.Logger
}

// Streams tracks the open long answers (event streams, terminals, commands), so that they can be
// ended. Safe for concurrent use.
type Streams struct {
	cfg Config

	mu      sync.Mutex
	stopped bool
	last    int
	open    map[int]opened
}

// opened is an open long answer: the function that ends it, and the key of its request.
type opened struct {
	cancel context.CancelFunc
	key    holdfast.KeyID
}

// New returns Streams without any open answer.
func New(cfg Config) *Streams { return &Streams{cfg: cfg, open: map[int]opened{}} }

// Join returns a context for a long answer, which ends when ctx ends, at Stop, or when the
// request's key is revoked. The caller must call the returned function when the answer ends.
func (s *Streams) Join(ctx context.Context) (context.Context, context.CancelFunc) {
	key := s.cfg.KeyOf(ctx)
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	// A revocation first marks the key, which is checked here, and then calls End, so that no
	// answer is missed between the two.
	if s.stopped || key != "" && s.cfg.Revoked(key) {
		cancel()
		return ctx, cancel
	}
	s.last++
	n := s.last
	s.open[n] = opened{cancel, key}
	return ctx, func() {
		cancel()
		s.mu.Lock()
		delete(s.open, n)
		s.mu.Unlock()
	}
}

// End ends the open long answers of a key that was revoked.
func (s *Streams) End(key holdfast.KeyID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.open {
		if o.key == key {
			o.cancel()
		}
	}
}

// Stop ends all open long answers and refuses new ones. Idempotent.
func (s *Streams) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for _, o := range s.open {
		o.cancel()
	}
}

// Stopped returns the error with which new long answers are refused after Stop; nil before Stop.
func (s *Streams) Stopped() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return holdfast.Errorf(holdfast.KindUnavailable, "request", "the server is stopping").WithHint("try again in a moment")
	}
	return nil
}
