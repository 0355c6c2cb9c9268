package boxd

import (
	"sync"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// census counts the processes of the box, and those requests of one connection that may change something and have
// ended.
type census struct {
	mu    sync.Mutex // held during a whole count: of two counts, the one with more ended requests was made later
	ended uint64
}

// count returns how many processes live now. ended adds a request to those that have ended.
func (c *census) count(hands Hands, led *ledger, ended bool) wire.Alive {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ended {
		c.ended++
	}
	_, running := led.counts() // counted first: when a call has ended, the processes that it left exist, and Alive counts them
	n := hands.Alive()
	if n >= 0 {
		n = max(n, running)
	}
	return wire.Alive{Processes: n, Ended: c.ended}
}

// change is one request and what the census needs to know of it. ended is true if the request was counted as
// ended, or if it changes nothing and is never counted.
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
