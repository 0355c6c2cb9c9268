package sqlite

import (
	"container/list"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// cacheMax is how many sessions the writer remembers, about 1 KiB each.
const cacheMax = 1024

// cache holds the sessions that the writer wrote lately. Only the writer goroutine uses it.
// Its rows are never changed in place.
type cache struct {
	rows  map[holdfast.SessionID]*list.Element
	order *list.List // of *journal.Row, newest use first
}

func newCache() *cache {
	return &cache{rows: make(map[holdfast.SessionID]*list.Element), order: list.New()}
}

// reset forgets everything.
func (c *cache) reset() {
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

// recent holds, for readers, the sessions written lately as the last commit left them: the
// row of a busy session costs them no query. The directory's lock keeps other servers away
// (HZ-3); after a write by another program it is forgotten at the next commit, as the cache
// is.
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

// drop forgets rows.
func (r *recent) drop(ids []holdfast.SessionID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		delete(r.rows, id)
	}
}

// put publishes rows after their commit. row returns nil for a deleted session.
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

// ruled remembers permission rules by their key, as they were read since their last change.
type ruled struct {
	mu    sync.RWMutex
	lists map[string][]journal.Rule
	// changes counts how often rules were forgotten.
	changes int64
}

// get returns the rules of a key; ok is false if they are not known, and then at is for
// keep.
func (r *ruled) get(key string) (list []journal.Rule, ok bool, at int64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	list, ok = r.lists[key]
	return list, ok, r.changes
}

// keep remembers rules that were read after get returned at, unless some changed since.
func (r *ruled) keep(key string, list []journal.Rule, at int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at != r.changes {
		return
	}
	if r.lists == nil || len(r.lists) >= recentMax {
		r.lists = make(map[string][]journal.Rule)
	}
	r.lists[key] = list
}

// drop forgets the rules of keys that a commit changed.
func (r *ruled) drop(keys []string) {
	if len(keys) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
	for _, key := range keys {
		delete(r.lists, key)
	}
}

// forget drops everything.
func (r *ruled) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists = nil
	r.changes++
}
