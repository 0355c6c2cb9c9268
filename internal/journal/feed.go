package journal

import (
	"container/list"
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast"
)

// tailBytes bounds the payloads a feed keeps, whatever their number, and idleBytes
// those of a feed that has no reader now.
const (
	tailBytes = 256 << 10
	idleBytes = 32 << 10
)

// deltaOverhead is what a waiting delta is charged besides its payload.
const deltaOverhead = 256

type limits struct{ tail, deltaBytes, idle int }

// feed is what the readers of a session share: the recent events and
// the recent deltas, each stored and encoded once. Readers are cursors into it.
type feed struct {
	id  holdfast.SessionID
	lim limits

	// refs counts readers, idle is the feed's place among those without any; both
	// are changed under Journal.mu.
	refs atomic.Int32
	idle *list.Element

	mu sync.Mutex
	// most bounds tailBytes: less without readers.
	most int

	// known: head was read from the store once.
	known bool
	// head is the newest sequence number readers may see. tail holds the events
	// up to head without a hole, oldest first, as far back as the limits allow.
	head      int64
	tail      []*Frame
	tailBytes int

	// deltas are the recent deltas, the first having the number firstDelta.
	deltas     []*delta
	firstDelta int64
	deltaBytes int

	// dropped: the session is gone, its readers end.
	dropped bool

	// wake is closed when there is something new; nil while nobody waits.
	wake chan struct{}
}

// delta is an unnumbered event and its place in the log: right after event
// number after.
type delta struct {
	frame *Frame
	after int64
	value any
	cost  int
}

func newFeed(id holdfast.SessionID, lim limits) *feed {
	return &feed{id: id, lim: lim, most: tailBytes}
}

// append takes the events of a commit and wakes the readers. Events that a reader's join
// counted already are left out: that reader takes them from the store.
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

// join takes the log's end as the store has it and returns the number of the
// next delta. Only the first reader's moves head: for later ones the commits
// that are on their way do, and their events then come from memory.
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

// push adds events to the tail. Where some before them are missing, because a commit failed
// after it was written, the tail begins anew: readers take those from the store.
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

// trim keeps the tail within its limits; with readers the newest event stays,
// whatever its size.
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

// rest makes the feed small: its last reader has left. It is worth keeping when
// that reader ever knew the log.
func (f *feed) rest() (keep bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.firstDelta += int64(len(f.deltas))
	f.deltas, f.deltaBytes = nil, 0
	f.most = idleBytes
	f.trim()
	return f.known
}

// publish adds a delta; the oldest go when they are too many.
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

// signal wakes all who wait.
func (f *feed) signal() {
	if f.wake != nil {
		close(f.wake)
		f.wake = nil
	}
}

// waiter is a channel that is closed at the next change. f.mu is held.
func (f *feed) waiter() <-chan struct{} {
	if f.wake == nil {
		f.wake = make(chan struct{})
	}
	return f.wake
}

// event is the event after a position, nil when the tail no longer has it.
// f.mu is held.
func (f *feed) event(after int64) *Frame {
	i := len(f.tail) - int(f.head-after)
	if after >= f.head || i < 0 {
		return nil
	}
	return f.tail[i]
}
