package hook

import (
	"bytes"
	"sync"
)

// Bounded collects what a hook writes, up to MaxOutput. What is beyond is dropped
// and told once. The zero value is ready; safe for concurrent use.
type Bounded struct {
	// Over is called once, when more than MaxOutput was written; may be nil.
	Over func()

	mu      sync.Mutex
	buf     bytes.Buffer
	flooded bool
}

// Write never fails, so that the writer is not held up.
func (b *Bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	room := MaxOutput - b.buf.Len()
	if len(p) <= room {
		return b.buf.Write(p)
	}
	b.buf.Write(p[:room])
	if !b.flooded {
		b.flooded = true
		if b.Over != nil {
			b.Over()
		}
	}
	return len(p), nil
}

// Bytes is what was written, and whether that was too much.
func (b *Bounded) Bytes() ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Bytes(), b.flooded
}
