package boxd

import "sync"

// gate holds back what starts processes while the work leaf is to be frozen
// (HZ-10, I-17). It stands before the ledger's check, so that a call that waited for
// it is judged by the token of the moment it acts.
type gate struct {
	hands Hands
	// turn serialises changes.
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

// enter waits until the gate is open. It reports false when one of the channels
// closed first. Every true is followed by leave.
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

// set closes or opens the gate. Closing returns when nothing is under way. The
// change itself runs through guard, which may refuse it.
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
	// The hands hold back on their own what slips in between.
	g.hands.Gate(closed)
	return nil
}

func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}
