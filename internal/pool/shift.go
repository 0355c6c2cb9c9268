package pool

import (
	"context"
	"sync"

	"github.com/holdfast-run/holdfast"
)

// shift is the time in which a pool works: its lock, whether it is open, and the goroutines
// that its end waits for. Each part of the pool that waits or has goroutines knows it.
type shift struct {
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
func (s *shift) begin(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != phaseNew {
		return holdfast.Errorf(holdfast.KindInternal, "pool.start", "started twice")
	}
	s.phase = phaseOpen
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return nil
}

// end closes the pool and waits for its goroutines. It returns false for a pool that was not
// open.
func (s *shift) end() bool {
	s.mu.Lock()
	was := s.phase
	s.phase = phaseClosed
	s.mu.Unlock()
	if was != phaseOpen {
		return false
	}
	s.cancel()
	s.work.Wait()
	return true
}

// open returns an error unless the pool is open; mu is held.
func (s *shift) open() error {
	if s.phase == phaseOpen {
		return nil
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "pool", "the server is not serving boxes").
		WithHint("retry when it has started")
}

// spawn runs a goroutine that the end of the pool waits for. It does nothing once the pool is
// closed. mu is held.
func (s *shift) spawn(fn func()) {
	if s.phase == phaseOpen {
		s.work.Go(fn)
	}
}
