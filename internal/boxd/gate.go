package boxd

import "sync"

// gate holds back calls that start processes while the tools' cgroup is about to be frozen
// (HZ-10, I-17). A call passes the gate before the ledger checks its fencing token, so that the
// token is checked at the moment when the call acts.
type gate struct {
	hands Hands
	// turn serialises calls of set.
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

// enter waits until the gate is open. It returns false if one of the channels is closed first.
// After each true the caller must call leave.
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

// set closes or opens the gate. Closing waits until every call inside has left. The change is
// made through guard, which may refuse it.
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
	// Hands has a gate of its own. It holds back a start of a process that passed the gate of this type before it
	// closed.
	g.hands.Gate(closed)
	return nil
}

func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}
