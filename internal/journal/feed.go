package journal

import (
	"container/list"
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast"
)

// tailBytes is the largest total payload that a feed keeps in memory, idleBytes that of a feed
// without readers.
const (
	tailBytes = 256 << 10
	idleBytes = 32 << 10
)

// deltaOverhead is added to the payload of a delta to estimate its memory, in bytes.
const deltaOverhead = 256

type limits struct{ tail, deltaBytes, idle int }

// feed holds the recent events and deltas of a session, each stored and encoded once, for all its
// readers. A reader is a position in it.
type feed struct {
	id  holdfast.SessionID
	lim limits

	// refs is the number of readers, idle the feed's place in the list of feeds without readers; both
	// change under Journal.mu.
	refs atomic.Int32
	idle *list.Element

	mu sync.Mutex
	// most is the current limit of tailBytes, smaller without readers.
	most int

	// known is true once head was read from the store.
	known bool
	// head is the newest sequence number readers may see. tail holds the events
	// up to head without a hole, oldest first, as far back as the limits allow.
	head      int64
	tail      []*Frame
	tailBytes int

	// deltas are the recent deltas; firstDelta is the number of the first one.
	deltas     []*delta
	firstDelta int64
	deltaBytes int

	// dropped is true after the session was deleted; readers then fail.
	dropped bool

	// wake is closed when an event or a delta is added; nil while no reader waits.
	wake chan struct{}
}

// delta is an unnumbered event. Its place is right after the event with the number after.
type delta struct {
	frame *Frame
	after int64
	value any
	cost  int
}

func newFeed(id holdfast.SessionID, lim limits) *feed {
	return &feed{id: id, lim: lim, most: tailBytes}
}

// append adds the events of a commit and wakes the readers. Events up to head are ignored: readers
// that joined since read them from the store.
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

// join tells the feed the log's newest number, which a new reader read from the store, and returns
// the number of the next delta. Only the first reader's number moves head: later, commits do, so
// that their events are served from memory.
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

// push adds events to the tail. If events before them are missing, because a commit failed after it
// was written, the tail is emptied first: readers then read the missing ones from the store.
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

// trim shortens the tail to its limits. While there are readers the newest event stays, whatever
// its size.
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

// rest shrinks the feed when its last reader has left. It returns false if the feed never read the
// log's end from the store and is not worth keeping.
func (f *feed) rest() (keep bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.firstDelta += int64(len(f.deltas))
	f.deltas, f.deltaBytes = nil, 0
	f.most = idleBytes
	f.trim()
	return f.known
}

// publish adds a delta, and drops the oldest ones when they exceed the limit.
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

// waiter returns a channel that is closed when something is added next. f.mu is held.
func (f *feed) waiter() <-chan struct{} {
	if f.wake == nil {
		f.wake = make(chan struct{})
	}
	return f.wake
}

// event returns the event that follows a position, or nil if the tail does not have it. f.mu is
// held.
func (f *feed) event(after int64) *Frame {
	i := len(f.tail) - int(f.head-after)
	if after >= f.head || i < 0 {
		return nil
	}
	return f.tail[i]
}
