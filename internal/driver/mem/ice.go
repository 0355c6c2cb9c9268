package mem

import "sync"

// ice freezes the processes of a box: it keeps them from beginning their next step. It uses channels
// instead of locks, so that a frozen box also blocks properly in a testing/synctest bubble.
type ice struct {
	mu      sync.Mutex
	thawed  chan struct{} // not nil while frozen; closed by the thaw
	active  int
	drained chan struct{} // not nil while a freeze waits; closed when active is 0
}

// enter begins a step of a process; while the box is frozen, it waits. It returns false if dead was closed.
func (i *ice) enter(dead <-chan struct{}) bool {
	for {
		select {
		case <-dead:
			return false
		default:
		}
		i.mu.Lock()
		if i.thawed == nil {
			i.active++
			i.mu.Unlock()
			return true
		}
		thawed := i.thawed
		i.mu.Unlock()
		select {
		case <-thawed:
		case <-dead:
			return false
		}
	}
}

// leave ends a step.
func (i *ice) leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.active--
	if i.active == 0 && i.drained != nil {
		close(i.drained)
		i.drained = nil
	}
}

// freeze prevents new steps. The channel that it returns is closed when no step is in progress.
func (i *ice) freeze() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.thawed == nil {
		i.thawed = make(chan struct{})
	}
	if i.active == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if i.drained == nil {
		i.drained = make(chan struct{})
	}
	return i.drained
}

func (i *ice) thaw() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.thawed != nil {
		close(i.thawed)
		i.thawed = nil
	}
}

func (i *ice) frozen() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.thawed != nil
}
