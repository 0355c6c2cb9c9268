package journal

import (
	"container/list"
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast"
)

// tailBytes is the largest total payload, in bytes, of the events that a feed with readers keeps in memory;
// idleBytes is the limit of a feed without readers.
const (
	tailBytes = 256 << 10
	idleBytes = 32 << 10
)

// deltaOverhead is added to the payload of a delta to estimate its memory, in bytes.
const deltaOverhead = 256

type limits struct{ tail, deltaBytes, idle int }

// feed holds the recent events and deltas of a session in memory for all its readers, each stored and encoded
// once. A reader is only a position in the feed.
type feed struct {
	id  holdfast.SessionID
	lim limits

	// refs is the number of readers, idle the feed's element in the list of feeds without readers. Both
	// change only while Journal.mu is held.
	refs atomic.Int32
	idle *list.Element

	mu sync.Mutex
	// most is the present limit of the field tailBytes: idleBytes without readers, else the constant tailBytes.
	most int

	// known is true once head was read from the store.
	known bool
	// head is the newest sequence number that readers may get. tail holds the newest events up to head
	// without a gap, oldest first, as many as the limits allow.
	head      int64
	tail      []*Frame
	tailBytes int

	// deltas are the recent deltas. The feed numbers its deltas; firstDelta is the number of the oldest one in memory.
	deltas     []*delta
	firstDelta int64
	deltaBytes int

	// dropped is true after the session was deleted; then readers get an error.
	dropped bool

	// wake is closed when an event or a delta is added; nil while no reader waits.
	wake chan struct{}
}

// delta is an event without a sequence number. Readers get it right after the event with the sequence number after.
type delta struct {
	frame *Frame
	after int64
	value any
	cost  int
}

func newFeed(id holdfast.SessionID, lim limits) *feed {
	return &feed{id: id, lim: lim, most: tailBytes}
}

// append adds the events of a commit and wakes the readers. It does nothing if the last of them is not above
// head, because readers that joined meanwhile have read these events from the store.
func (f *feed) append(evs []holdfast.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(evs) == 0 || evs[len(evs)-1].Seq <= f.head {
		return
	}
	frames := make([]*Frame, len(evs))
	for i, e := range evs {
		frames[i] = encodedFrame(e)
	}
	f.push(evs[0].Seq, frames)
	f.signal()
}

// join adds a reader that has read the log's newest number, head, from the store, and returns the number of
// the next delta. Only the first reader's head moves the feed's head. After that it moves only when events are
// committed, so that events of this server's commits are served from memory.
func (f *feed) join(head int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known && head > f.head {
		f.head = head
		f.tail, f.tailBytes = nil, 0
		f.signal()
	}
	f.known, f.most = true, tailBytes
	return f.firstDelta + int64(len(f.deltas))
}

// push adds events to the tail. If the events do not follow the tail directly, because a commit failed after
// it was written, push empties the tail first: readers then read the missing ones from the store.
func (f *feed) push(first int64, frames []*Frame) {
	if first != f.head+1 {
		f.tail, f.tailBytes = nil, 0
	}
	for _, fr := range frames {
		f.tail = append(f.tail, fr)
		f.tailBytes += len(fr.Data)
	}
	f.head = frames[len(frames)-1].Seq
	f.trim()
}

// trim removes the oldest events of the tail until it is within its limits. While there are readers the
// newest event stays, whatever its size.
func (f *feed) trim() {
	drop, keep := 0, 1
	if f.most == idleBytes {
		keep = 0
	}
	for len(f.tail)-drop > keep && (len(f.tail)-drop > f.lim.tail || f.tailBytes > f.most) {
		f.tailBytes -= len(f.tail[drop].Data)
		f.tail[drop] = nil
		drop++
	}
	f.tail = f.tail[drop:]
}

// rest shrinks the feed when its last reader has left. It returns false if the feed is of no use from then on,
// because no reader has read the log's end from the store.
func (f *feed) rest() (keep bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.firstDelta += int64(len(f.deltas))
	f.deltas, f.deltaBytes = nil, 0
	f.most = idleBytes
	f.trim()
	return f.known
}

// publish adds a delta, and removes the oldest deltas while all together exceed the limit.
func (f *feed) publish(e holdfast.Event, value any) {
	d := &delta{frame: encodedFrame(e), value: value, cost: len(e.Data) + deltaOverhead}
	f.mu.Lock()
	defer f.mu.Unlock()
	d.after = f.head
	f.deltas = append(f.deltas, d)
	f.deltaBytes += d.cost
	drop := 0
	for f.deltaBytes > f.lim.deltaBytes && drop < len(f.deltas) {
		f.deltaBytes -= f.deltas[drop].cost
		f.deltas[drop] = nil
		drop++
	}
	f.deltas = f.deltas[drop:]
	f.firstDelta += int64(drop)
	f.signal()
}

// signal wakes all waiting readers.
func (f *feed) signal() {
	if f.wake != nil {
		close(f.wake)
		f.wake = nil
	}
}

// waiter returns a channel that is closed when the next event or delta is added. The caller holds f.mu.
func (f *feed) waiter() <-chan struct{} {
	if f.wake == nil {
		f.wake = make(chan struct{})
	}
	return f.wake
}

// event returns the event that follows the sequence number after, or nil if the tail does not have it. The
// caller holds f.mu.
func (f *feed) event(after int64) *Frame {
	i := len(f.tail) - int(f.head-after)
	if after >= f.head || i < 0 {
		return nil
	}
	return f.tail[i]
}
