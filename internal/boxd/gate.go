package boxd

import "sync"

// gate makes calls that are about to start a process wait while the gate is closed. The server closes
// the gate before it freezes the tools' cgroup (HZ-10, I-17). A call enters the gate before the ledger
// checks that the call's connection may act: another connection can replace this one while the call waits.
type gate struct {
	hands Hands
	// turn is held during each call of set.
	turn sync.Mutex

	mu     sync.Mutex
	closed bool
	active int
	idle   *sync.Cond
	opened chan struct{}
}

func (g *gate) init(h Hands) {
	g.hands = h
	g.idle = sync.NewCond(&g.mu)
	g.opened = make(chan struct{})
}

// enter waits until the gate is open; the caller must then call leave. It returns false if one of the channels closes first.
func (g *gate) enter(replaced, gone, stopped <-chan struct{}) bool {
	for {
		g.mu.Lock()
		if !g.closed {
			g.active++
			g.mu.Unlock()
			return true
		}
		opened := g.opened
		g.mu.Unlock()
		select {
		case <-opened:
		case <-replaced:
			return false
		case <-gone:
			return false
		case <-stopped:
			return false
		}
	}
}

func (g *gate) leave() {
	g.mu.Lock()
	g.active--
	if g.active == 0 {
		g.idle.Broadcast()
	}
	g.mu.Unlock()
}

// set closes or opens the gate. When it closes the gate, it waits until every call that has entered has
// left. It makes the change in guard, which may return an error instead.
func (g *gate) set(closed bool, guard func(func()) error) error {
	g.turn.Lock()
	defer g.turn.Unlock()
	changed := false
	err := guard(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		changed = g.closed != closed
		g.closed = closed
		if changed && !closed {
			close(g.opened)
			g.opened = make(chan struct{})
		}
	})
	if err != nil || !changed {
		return err
	}
	if closed {
		g.mu.Lock()
		for g.active > 0 {
			g.idle.Wait()
		}
		g.mu.Unlock()
	}
	// Hands has a gate of its own, which blocks every start of a process.
	g.hands.Gate(closed)
	return nil
}

func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}
