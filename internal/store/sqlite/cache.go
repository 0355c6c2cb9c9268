package sqlite

import (
	"container/list"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// cacheMax is the most session rows that the writer's cache holds, about 1 KiB each.
const cacheMax = 1024

// cache holds the rows of the sessions that the writer changed most recently. Only the writer
// goroutine uses it. Its rows are never changed in place.
type cache struct {
	rows  map[holdfast.SessionID]*list.Element
	order *list.List // of *journal.Row; the row that was used last is at the front
}

func newCache() *cache {
	return &cache{rows: make(map[holdfast.SessionID]*list.Element), order: list.New()}
}

// reset empties the cache.
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

func (c *cache) put(row journal.Row) { // row is passed by value: a pointer to it would keep the whole change in memory
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

// recentMax is about how many entries recent and ruled can each have. One that is full is emptied when an
// entry is added.
const recentMax = 512

// recent holds the rows of sessions written recently, as the last commit left them, so that readers of a busy
// session need no query. The directory's lock keeps other servers from writing (HZ-3). If another program has
// written to the database, the next transaction empties recent, as well as the cache.
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

// drop removes the rows of ids, so that readers get them from the database.
func (r *recent) drop(ids []holdfast.SessionID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		delete(r.rows, id)
	}
}

// put stores the rows of ids for readers, after their commit. row returns the row of a session, nil
// if it was deleted.
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

// ruled caches lists of permission rules by key. A change of a key's rules drops its list.
type ruled struct {
	mu    sync.RWMutex
	lists map[string][]journal.Rule
	// changes counts how many times lists were dropped.
	changes int64
}

// get returns the cached rules of a key. If ok is false they are not cached: then the caller reads the rules
// and passes them to keep, together with at.
func (r *ruled) get(key string) (list []journal.Rule, ok bool, at int64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	list, ok = r.lists[key]
	return list, ok, r.changes
}

// keep caches the rules of a key, which were read after get returned at. It does nothing if rules of any key
// changed since then.
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

// drop removes the cached rules of keys that a commit changed.
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

// count returns how many times lists were dropped.
func (r *ruled) count() int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.changes
}

// forget removes all cached rules.
func (r *ruled) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists = nil
	r.changes++
}
