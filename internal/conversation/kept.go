package conversation

import (
	"iter"
	"sync"

	"github.com/holdfast-run/holdfast"
)

// Kept caches the conversations of sessions, so that a turn reads only the new events of its log.
// If they do not all fit, it drops arbitrary ones: dropping the least recently used one would make
// every session miss the cache when more sessions take turns than fit. Safe for concurrent use.
type Kept struct {
	maxCount int
	maxBytes int64

	mu    sync.Mutex
	bytes int64
	byID  map[holdfast.SessionID]*kept
}

// kept is the cached conversation of a session. While the log is being read, bytes is the size from before that read.
type kept struct {
	id    holdfast.SessionID
	bytes int64

	mu sync.Mutex
	c  Conversation
}

// NewKept returns a cache that is bounded in number and bytes; the most recently read conversation
// always stays.
func NewKept(count int, bytes int64) *Kept {
	return &Kept{maxCount: count, maxBytes: bytes, byID: map[holdfast.SessionID]*kept{}}
}

// Read reads the new events of a session's log and passes the conversation to the function use. Only one
// caller at a time reads a session. log returns the events after an event number. use may keep strings of the
// conversation, but no pointers or slices. Read returns an error of log, of decoding an event, or of use.
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

// take returns the cache entry of a session, and creates it if it is missing.
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

// weigh updates the recorded size of an entry. If the cache is over a limit, it drops other entries, in no
// order, until the cache fits.
func (k *Kept) weigh(x *kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byID[x.id] != x {
		return // the entry was dropped from the cache meanwhile
	}
	k.bytes += x.c.bytes - x.bytes
	x.bytes = x.c.bytes
	for _, other := range k.byID { // Go returns the entries of a map in random order
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
