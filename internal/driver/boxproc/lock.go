package boxproc

import (
	"context"
	"sync"

	"github.com/holdfast-run/holdfast"
)

// Locks serialises the calls for each box, while calls for different boxes run concurrently. A driver
// may lock other things by a name of its own, such as workspaces. The zero value is ready. Safe for concurrent use.
type Locks struct {
	mu sync.Mutex
	m  map[holdfast.BoxID]*boxLock
}

type boxLock struct {
	sem  chan struct{}
	refs int
}

// Lock takes the box's lock. While another caller has it, Lock waits, and fails with unavailable when ctx ends. The
// caller must call unlock exactly once.
func (l *Locks) Lock(ctx context.Context, box holdfast.BoxID) (unlock func(), err error) {
	l.mu.Lock()
	if l.m == nil {
		l.m = map[holdfast.BoxID]*boxLock{}
	}
	b := l.m[box]
	if b == nil {
		b = &boxLock{sem: make(chan struct{}, 1)}
		l.m[box] = b
	}
	b.refs++
	l.mu.Unlock()

	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if b.refs--; b.refs == 0 {
			delete(l.m, box)
		}
	}
	if err := ctx.Err(); err != nil {
		leave()
		return nil, canceled(err)
	}
	select {
	case b.sem <- struct{}{}:
		return func() { <-b.sem; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, canceled(ctx.Err())
	}
}

func canceled(err error) error {
	return holdfast.Errorf(holdfast.KindUnavailable, "driver", "gave up waiting until another driver call on the same box or workspace ends: %w", err)
}
