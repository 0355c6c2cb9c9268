package conversation

import (
	"container/list"
	"iter"
	"sync"

	"github.com/holdfast-run/holdfast"
)

// Kept holds the conversations of the sessions that were read last, so that a turn reads
// only what is new in its log. Safe for concurrent use.
type Kept struct {
	maxCount int
	maxBytes int64

	mu    sync.Mutex
	bytes int64
	order *list.List // of *kept, read last in front
	byID  map[holdfast.SessionID]*list.Element
}

// kept is the conversation of a session. While it is read it is counted as it was before.
type kept struct {
	id    holdfast.SessionID
	bytes int64

	mu sync.Mutex
	c  Conversation
}

// NewKept bounds what is kept in number and bytes; the one that was read last is kept in
// any case.
func NewKept(count int, bytes int64) *Kept {
	return &Kept{maxCount: count, maxBytes: bytes, order: list.New(), byID: map[holdfast.SessionID]*list.Element{}}
}

// Read reads a session's log to its end and hands its conversation to use, one caller at
// a time. Log gives the events after a number. The conversation belongs to use until it
// returns: it may keep the texts, no pointer and no slice. An error of log, of an event or
// of use is returned.
func (k *Kept) Read(id holdfast.SessionID, log func(after int64) iter.Seq2[holdfast.Event, error], use func(*Conversation) error) error {
	x := k.take(id)
	x.mu.Lock()
	defer x.mu.Unlock()
	err := x.c.read(log(x.c.Seq))
	k.weigh(x)
	if err != nil {
		return err
	}
	return use(&x.c)
}

// take is the session's entry, in front now.
func (k *Kept) take(id holdfast.SessionID) *kept {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.byID[id]; e != nil {
		k.order.MoveToFront(e)
		return e.Value.(*kept)
	}
	x := &kept{id: id}
	k.byID[id] = k.order.PushFront(x)
	return x
}

// weigh counts an entry as it is now, and drops those read longest ago.
func (k *Kept) weigh(x *kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.byID[x.id]
	if e == nil || e.Value != x {
		return // forgotten meanwhile
	}
	k.bytes += x.c.bytes - x.bytes
	x.bytes = x.c.bytes
	for k.order.Len() > 1 && (k.bytes > k.maxBytes || k.order.Len() > k.maxCount) {
		k.remove(k.order.Back())
	}
}

// Forget drops a session's conversation.
func (k *Kept) Forget(id holdfast.SessionID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.byID[id]; e != nil {
		k.remove(e)
	}
}

func (k *Kept) remove(e *list.Element) {
	x := k.order.Remove(e).(*kept)
	delete(k.byID, x.id)
	k.bytes -= x.bytes
}
