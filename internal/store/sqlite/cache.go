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

// reset forgets everything; what comes in from now on is true at version.
func (c *cache) reset(version int64) {
	c.version = version
	clear(c.rows)
	c.order.Init()
}

func (c *cache) get(id holdfast.SessionID) *journal.Row {
	e := c.rows[id]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*journal.Row)
}

func (c *cache) put(row journal.Row) { // a copy: a pointer into a change would keep all of it
	if e := c.rows[row.ID]; e != nil {
		e.Value = &row
		c.order.MoveToFront(e)
		return
	}
	c.rows[row.ID] = c.order.PushFront(&row)
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
// left them: row and rules of a busy session cost them no query. The directory's lock
// keeps other servers away (HZ-3); after a foreign write it is forgotten at the
// next commit, as the cache is.
type recent struct {
	mu   sync.RWMutex
	rows map[holdfast.SessionID]*journal.Row
	// rules are the permission rules by key, as they were read since their last
	// change; changes counts those.
	rules   map[string][]journal.Rule
	changes int64
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
	r.rules = nil
	r.changes++
}

// ruled are the rules of a key if they are known; else at is for keep.
func (r *recent) ruled(key string) (list []journal.Rule, ok bool, at int64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	list, ok = r.rules[key]
	return list, ok, r.changes
}

// keep takes in rules that were read after ruled said at, unless some changed since.
func (r *recent) keep(key string, list []journal.Rule, at int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at != r.changes {
		return
	}
	if r.rules == nil || len(r.rules) >= recentMax {
		r.rules = make(map[string][]journal.Rule)
	}
	r.rules[key] = list
}

// reruled forgets the rules of keys that a commit changed.
func (r *recent) reruled(keys []string) {
	if len(keys) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
	for _, key := range keys {
		delete(r.rules, key)
	}
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
