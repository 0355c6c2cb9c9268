package native

import (
	"container/list"
	"sync"

	"github.com/holdfast-run/holdfast"
)

// cache keeps the histories of sessions used last, bounded in number and bytes.
// A history is taken out while a turn uses it. Safe for concurrent use.
type cache struct {
	maxCount int
	maxBytes int64

	mu    sync.Mutex
	bytes int64
	order *list.List // of *cached, used last in front
	byID  map[holdfast.SessionID]*list.Element
	// out are the histories that turns use, so that Forget reaches them.
	out map[holdfast.SessionID]*history
}

type cached struct {
	id holdfast.SessionID
	h  *history
}

func newCache(count int, bytes int64) *cache {
	return &cache{
		maxCount: count, maxBytes: bytes, order: list.New(),
		byID: make(map[holdfast.SessionID]*list.Element), out: make(map[holdfast.SessionID]*history),
	}
}

// take is the session's history, or an empty one. The caller owns it until put.
func (c *cache) take(id holdfast.SessionID) *history {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := new(history)
	if e := c.byID[id]; e != nil {
		h = c.remove(e)
	}
	c.out[id] = h
	return h
}

// put gives a history back. It is dropped when the session was forgotten or
// taken by another turn since.
func (c *cache) put(id holdfast.SessionID, h *history) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out[id] != h {
		return
	}
	delete(c.out, id)
	if h.bytes > c.maxBytes {
		return
	}
	c.byID[id] = c.order.PushFront(&cached{id: id, h: h})
	c.bytes += h.bytes
	for c.bytes > c.maxBytes || c.order.Len() > c.maxCount {
		c.remove(c.order.Back())
	}
}

// drop forgets a session, also one that a turn uses now.
func (c *cache) drop(id holdfast.SessionID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.out, id)
	if e := c.byID[id]; e != nil {
		c.remove(e)
	}
}

func (c *cache) remove(e *list.Element) *history {
	v := c.order.Remove(e).(*cached)
	delete(c.byID, v.id)
	c.bytes -= v.h.bytes
	return v.h
}
