package sandbox

import (
	"bytes"
	"io"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast"
)

// Feed is the Stdin of a process that outlives its attachments: what is added to it is
// read in order, and it has no end that the process would see. Safe for concurrent use.
// Make one with NewFeed.
type Feed struct {
	mu     sync.Mutex
	wake   *sync.Cond
	buf    []byte
	at     int64
	closed bool
}

// NewFeed makes a Feed that nothing was added to.
func NewFeed() *Feed {
	f := new(Feed)
	f.wake = sync.NewCond(&f.mu)
	return f
}

// Begin says how much the process had taken before this attachment: wire.Started tells
// it, and something may have been added by then.
func (f *Feed) Begin(taken int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at += taken
}

// Next is where what is added next will begin, in all that was ever sent.
func (f *Feed) Next() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at
}

// mostFed bounds what a Feed holds that the process did not read, in bytes.
const mostFed = 64 << 20

// Add adds pieces with nothing of anybody else between them, all of them or none:
// too_large when the process leaves so much unread that more is not kept for it (I-19).
func (f *Feed) Add(pieces ...[]byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	more := 0
	for _, p := range pieces {
		more += len(p)
	}
	if len(f.buf)+more > mostFed {
		return holdfast.Errorf(holdfast.KindTooLarge, "sandbox.feed", "the process leaves %d bytes of its input unread", len(f.buf)).
			WithHint("it does not read what it is sent: send the message again, or end the session")
	}
	for _, p := range pieces {
		f.buf = append(f.buf, p...)
		f.at += int64(len(p))
	}
	f.wake.Broadcast()
	return nil
}

// Close ends the reading with io.ErrClosedPipe, whatever is left.
func (f *Feed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.wake.Broadcast()
}

// Read implements io.Reader. It waits until there is something.
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

// tailKept is how much a Tail keeps.
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

// String is what was kept, as valid text without space around it.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(bytes.TrimSpace(t.buf)), "\uFFFD")
}
