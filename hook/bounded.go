package hook

import (
	"bytes"
	"sync"
)

// Bounded is a writer that collects a hook's output, up to MaxOutput bytes. It drops the rest
// and calls Over once. The zero value is ready to use. Safe for concurrent use.
type Bounded struct {
	// Over is called once, when more than MaxOutput bytes are written; may be nil.
	Over func()

	mu      sync.Mutex
	buf     bytes.Buffer
	flooded bool
}

// Write implements io.Writer. It never fails, so that the hook is not blocked by a full buffer.
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

// Bytes returns the collected output, and whether more than MaxOutput bytes were written.
func (b *Bounded) Bytes() ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Bytes(), b.flooded
}
