package sqlite

import (
	"container/list"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// cacheMax is how many sessions the writer remembers, about 1 KiB each.
const cacheMax = 1024

// cache is what the writer knows of the sessions it wrote lately. Only the
// writer goroutine uses it. Its rows are never changed in place.
type cache struct {
	version int64 // SQLite's data_version at which it is true
	rows    map[holdfast.SessionID]*list.Element
	order   *list.List // of *journal.Row, newest use first
}

func newCache() *cache {
	return &cache{rows: make(map[holdfast.SessionID]*list.Element), order: list.New()}
}

// at forgets everything when another connection has changed the file, and
// reports that.
func (c *cache) at(version int64) bool {
	if version == c.version {
		return false
	}
	c.version = version
	clear(c.rows)
	c.order.Init()
	return true
}

func (c *cache) get(id holdfast.SessionID) *journal.Row {
	e := c.rows[id]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*journal.Row)
}

func (c *cache) put(row *journal.Row) {
	if e := c.rows[row.ID]; e != nil {
		e.Value = row
		c.order.MoveToFront(e)
		return
	}
	c.rows[row.ID] = c.order.PushFront(row)
	if c.order.Len() > cacheMax {
		last := c.order.Back()
		c.order.Remove(last)
		delete(c.rows, last.Value.(*journal.Row).ID)
	}
}

func (c *cache) drop(id holdfast.SessionID) {
	if e := c.rows[id]; e != nil {
		c.order.Remove(e)
		delete(c.rows, id)
	}
}

// recentMax bounds recent; it holds the sessions that are being worked on.
const recentMax = 512

// recent is what readers see of the sessions written lately, as the last commit
// left them: the row of a busy session costs them no query. The directory's lock
// keeps other servers away (HZ-3); after a foreign write it is forgotten at the
// next commit, as the cache is.
type recent struct {
	mu   sync.RWMutex
	rows map[holdfast.SessionID]*journal.Row
}

func (r *recent) get(id holdfast.SessionID) *journal.Row {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.rows[id]
}

func (r *recent) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = nil
}

// put publishes rows after their commit; nil forgets a deleted session.
func (r *recent) put(ids []holdfast.SessionID, row func(holdfast.SessionID) *journal.Row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rows == nil || len(r.rows) > recentMax {
		r.rows = make(map[holdfast.SessionID]*journal.Row)
	}
	for _, id := range ids {
		if n := row(id); n != nil {
			r.rows[id] = n
		} else {
			delete(r.rows, id)
		}
	}
}
