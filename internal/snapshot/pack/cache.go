package pack

import "sync"

// indexMemory is about how many bytes of indexes a store keeps at most.
const indexMemory = 16 << 20

// cache keeps the most recently used values, up to a number of bytes. Safe for concurrent use.
type cache[K comparable, V any] struct {
	most int

	mu    sync.Mutex
	slots map[K]*slot[V]
	bytes int
	clock uint64
}

type slot[V any] struct {
	value V
	bytes int
	used  uint64
}

func (c *cache[K, V]) get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.slots[key]
	if s == nil {
		return value, false
	}
	c.clock++
	s.used = c.clock
	return s.value, true
}

// put adds a value that needs so many bytes, and drops the least recently used values to make room. It does not keep a
// value that is larger than the cache.
func (c *cache[K, V]) put(key K, value V, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(key)
	if bytes > c.most {
		return
	}
	for c.bytes+bytes > c.most {
		c.remove(c.oldest())
	}
	if c.slots == nil {
		c.slots = map[K]*slot[V]{}
	}
	c.clock++
	c.slots[key] = &slot[V]{value, bytes, c.clock}
	c.bytes += bytes
}

func (c *cache[K, V]) drop(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(key)
}

func (c *cache[K, V]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slots, c.bytes = nil, 0
}

func (c *cache[K, V]) remove(key K) {
	if s := c.slots[key]; s != nil {
		c.bytes -= s.bytes
		delete(c.slots, key)
	}
}

func (c *cache[K, V]) oldest() (key K) {
	least := c.clock + 1
	for k, s := range c.slots {
		if s.used < least {
			key, least = k, s.used
		}
	}
	return key
}
