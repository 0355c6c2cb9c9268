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
	// Ping is how long an event stream is silent before it shows that it is alive.
	Ping time.Duration
	// KeyOf returns the key of the request of ctx, empty for the owner; Revoked reports
	// whether a key was revoked.
	KeyOf   func(ctx context.Context) holdfast.KeyID
	Revoked func(holdfast.KeyID) bool
	Log     *slog.Logger
}

// Streams tracks the answers that go on, so that they can be ended. Safe for concurrent
// use.
type Streams struct {
	cfg Config

	mu      sync.Mutex
	stopped bool
	last    int
	open    map[int]opened
}

// opened is an answer that goes on, with the key that asked for it.
type opened struct {
	cancel context.CancelFunc
	key    holdfast.KeyID
}

// New returns Streams without any open answer.
func New(cfg Config) *Streams { return &Streams{cfg: cfg, open: map[int]opened{}} }

// Join returns the context of an answer that goes on. It ends with the request, with
// Stop, or with the request's key. The caller must call the returned function.
func (s *Streams) Join(ctx context.Context) (context.Context, context.CancelFunc) {
	key := s.cfg.KeyOf(ctx)
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	// A revocation marks the key first and calls End afterwards, so that no answer slips
	// through between the two.
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

// End ends the open answers of a key that was revoked.
func (s *Streams) End(key holdfast.KeyID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.open {
		if o.key == key {
			o.cancel()
		}
	}
}

// Stop ends all open answers and refuses new ones. Idempotent.
func (s *Streams) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for _, o := range s.open {
		o.cancel()
	}
}

// Stopped returns the refusal of new answers after Stop, nil before.
func (s *Streams) Stopped() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return holdfast.Errorf(holdfast.KindUnavailable, "request", "the server is stopping").WithHint("try again in a moment")
	}
	return nil
}
