package boxd

import (
	"sync"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// census counts the ended requests of a connection that may change something, and the processes.
type census struct {
	mu    sync.Mutex // held while counting, so that a later count has more ended requests
	ended uint64
}

// count returns how many processes live now. ended adds a request to those that have ended.
func (c *census) count(hands Hands, led *ledger, ended bool) wire.Alive {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ended {
		c.ended++
	}
	_, running := led.counts() // first: a call that ends meanwhile has left its processes by then
	n := hands.Alive()
	if n >= 0 {
		n = max(n, running)
	}
	return wire.Alive{Processes: n, Ended: c.ended}
}

// change is a request. ended: it is counted as ended, or changes nothing.
type change struct {
	*peer
	s     *Server
	ended bool
}

// report appends the frame that precedes the answer of the request.
func (c *change) report(buf []byte) []byte {
	buf, _ = wire.AppendJSON(buf, wire.FrameAlive, c.census.count(c.s.cfg.Hands, c.s.led, !c.ended))
	c.ended = true
	return buf
}

// end counts the request as ended if no answer was sent.
func (c *change) end() {
	if !c.ended {
		c.report(nil)
	}
}
