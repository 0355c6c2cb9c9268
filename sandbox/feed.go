package sandbox

import (
	"bytes"
	"io"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast"
)

// Feed is the Stdin of a process that outlives the Exec calls attached to it. Read returns the
// added bytes in order and never io.EOF, which the process would take for the end of its input.
// Safe for concurrent use. Make one with NewFeed.
type Feed struct {
	mu     sync.Mutex
	wake   *sync.Cond
	buf    []byte
	at     int64
	closed bool
}

// NewFeed makes an empty Feed.
func NewFeed() *Feed {
	f := new(Feed)
	f.wake = sync.NewCond(&f.mu)
	return f
}

// Begin tells the Feed how many bytes of its input the process had already read before this Exec attached
// to it (wire.Started.StdinTaken): Next becomes that much greater. Add may have been called before.
func (f *Feed) Begin(taken int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at += taken
}

// Next returns the offset that the next added byte will have in the process's whole input.
func (f *Feed) Next() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at
}

// mostFed is how many bytes a Feed may hold that the process has not read yet.
const mostFed = 64 << 20

// Add appends either all pieces or none; other callers' bytes never come between them. It fails
// with too_large if the process has left too much of its input unread (I-19).
func (f *Feed) Add(pieces ...[]byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	more := 0
	for _, p := range pieces {
		more += len(p)
	}
	if len(f.buf)+more > mostFed {
		return holdfast.Errorf(holdfast.KindTooLarge, "sandbox.feed", "the process has not read %d bytes of its input, and no more can be queued", len(f.buf)).
			WithHint("the process does not read its input fast enough: send the message again later, or end the session")
	}
	for _, p := range pieces {
		f.buf = append(f.buf, p...)
		f.at += int64(len(p))
	}
	f.wake.Broadcast()
	return nil
}

// Close makes Read return io.ErrClosedPipe, even if unread bytes are left.
func (f *Feed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.wake.Broadcast()
}

// Read implements io.Reader. It waits until bytes are added or the Feed is closed.
func (f *Feed) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.buf) == 0 && !f.closed {
		f.wake.Wait()
	}
	if f.closed {
		return 0, io.ErrClosedPipe
	}
	n := copy(p, f.buf)
	if f.buf = f.buf[n:]; len(f.buf) == 0 {
		f.buf = nil
	}
	return n, nil
}

// tailKept is how many bytes a Tail keeps.
const tailKept = 2 << 10

// Tail keeps the end of what is written to it, for messages about a process that ended.
// Safe for concurrent use; the zero value is ready.
type Tail struct {
	mu  sync.Mutex
	buf []byte
}

// Write implements io.Writer. It does not fail.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p[max(0, len(p)-tailKept):]...)
	if over := len(t.buf) - tailKept; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

// String returns the end of what was written, as valid UTF-8 without space around it.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(bytes.TrimSpace(t.buf)), "\uFFFD")
}
