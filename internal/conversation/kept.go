package conversation

import (
	"iter"
	"sync"

	"github.com/holdfast-run/holdfast"
)

// Kept holds the conversations of sessions, so that a turn reads only what is new in its log.
// When they do not all fit, it drops any of them. If it dropped the one that was read longest ago,
// and more sessions took turns than fit, each would find its conversation gone. Safe for concurrent
// use.
type Kept struct {
	maxCount int
	maxBytes int64

	mu    sync.Mutex
	bytes int64
	byID  map[holdfast.SessionID]*kept
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
	return &Kept{maxCount: count, maxBytes: bytes, byID: map[holdfast.SessionID]*kept{}}
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

// take returns the session's entry.
func (k *Kept) take(id holdfast.SessionID) *kept {
	k.mu.Lock()
	defer k.mu.Unlock()
	x := k.byID[id]
	if x == nil {
		x = &kept{id: id}
		k.byID[id] = x
	}
	return x
}

// weigh counts an entry as it is now, and drops others until the rest fits.
func (k *Kept) weigh(x *kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byID[x.id] != x {
		return // forgotten meanwhile
	}
	k.bytes += x.c.bytes - x.bytes
	x.bytes = x.c.bytes
	for _, other := range k.byID { // in no order
		if k.bytes <= k.maxBytes && len(k.byID) <= k.maxCount {
			return
		}
		if other != x {
			k.remove(other)
		}
	}
}

// Forget drops a session's conversation.
func (k *Kept) Forget(id holdfast.SessionID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if x := k.byID[id]; x != nil {
		k.remove(x)
	}
}

func (k *Kept) remove(x *kept) {
	delete(k.byID, x.id)
	k.bytes -= x.bytes
}
