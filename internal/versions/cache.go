// Package versions caches values that are derived from agent versions, such as parsed settings.
//
// The packages that read, compile or stage a version import it; it imports the vocabulary.
// Invariant: a version never changes, so a cached value stays right; a cached value can be dropped at any time,
// because it can be derived again.
package versions

import (
	"sync"

	"github.com/holdfast-run/holdfast"
)

// Most is the largest number of versions in a Cache.
const Most = 64

// Cache holds one value for each of at most Most versions. The zero value is empty. Safe for
// concurrent use.
type Cache[T any] struct {
	mu   sync.Mutex
	kept map[holdfast.VersionID]T
}

// Get returns the cached value of a version, and whether there is one.
func (c *Cache[T]) Get(id holdfast.VersionID) (T, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.kept[id]
	return v, ok
}

// Keep stores the value of a version and returns it. A full cache drops the value of another one.
func (c *Cache[T]) Keep(id holdfast.VersionID, v T) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		c.kept = map[holdfast.VersionID]T{}
	}
	for old := range c.kept {
		if len(c.kept) < Most {
			break
		}
		delete(c.kept, old)
	}
	c.kept[id] = v
	return v
}

// Len returns the number of cached values.
func (c *Cache[T]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.kept)
}
