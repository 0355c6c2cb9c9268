package boxd

import (
	"sync"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// census counts, for one connection, how many of its requests that may change something have ended. Together with this
// number it reports how many processes live in the box.
type census struct {
	mu    sync.Mutex // held during each count: so of two counts, the one with more ended requests is the newer one
	ended uint64
}

// count returns how many processes live in the box now (-1 if not known) and how many requests have ended. If ended is
// true, it first counts one more ended request.
func (c *census) count(hands Hands, led *ledger, ended bool) wire.Alive {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ended {
		c.ended++
	}
	// Count the running calls first: if one ends after that, the processes that it left exist already, and Alive counts them.
	_, running := led.counts()
	n := hands.Alive()
	if n >= 0 {
		n = max(n, running)
	}
	return wire.Alive{Processes: n, Ended: c.ended}
}

// change is one request. ended is true if the census has counted it as ended, or never counts it (it changes nothing).
type change struct {
	*peer
	s     *Server
	ended bool
}

// report counts the request as ended, unless it did so before, and appends the frame with the number of processes.
func (c *change) report(buf []byte) []byte {
	buf, _ = wire.AppendJSON(buf, wire.FrameAlive, c.census.count(c.s.cfg.Hands, c.s.led, !c.ended))
	c.ended = true
	return buf
}

// end counts the request as ended, unless report has done so.
func (c *change) end() {
	if !c.ended {
		c.report(nil)
	}
}
