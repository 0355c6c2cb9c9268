package journal

import (
	"context"
	"io"
	"sync"

	"github.com/holdfast-run/holdfast"
)

// Reader follows a session's log: it returns the stored events after a sequence number, then new
// ones as they are committed, without gap or duplicate, and deltas in between. One goroutine may
// read; any may call Close.
//
// A reader has no buffer: it is a position in the log and one in the deltas. Events that the
// session's cache no longer has are read from the store.
type Reader struct {
	j    *Journal
	feed *feed

	// cursor is the sequence number of the last event that was returned, next the feed's number of the next
	// delta to return.
	cursor, next int64

	once   sync.Once
	closed chan struct{}
}

// Follow opens a reader of a session's log after a sequence number. It fails with not_found for an
// unknown session, and with invalid if after is negative or beyond the log's end.
func (j *Journal) Follow(ctx context.Context, id holdfast.SessionID, after int64) (*Reader, error) {
	if after < 0 {
		return nil, badAfter(after, -1)
	}
	// Create the feed before reading the head from the store. A commit that is too late for this head then
	// finds the feed and adds its events.
	f := j.join(id)
	head, err := j.store.Head(ctx, id)
	if err == nil && after > head {
		err = badAfter(after, head)
	}
	if err != nil {
		j.leave(f)
		return nil, err
	}
	r := &Reader{j: j, feed: f, cursor: after, closed: make(chan struct{})}
	r.next = f.join(head)
	return r, nil
}

// Next returns the next events, at least one, in order. It blocks until there are some, ctx ends,
// the reader is closed (io.EOF), or the session is deleted (gone). Other errors are those of the
// store; the position is unchanged then, and the caller may try again.
func (r *Reader) Next(ctx context.Context) ([]holdfast.Event, error) {
	frames, err := r.NextFrames(ctx)
	if err != nil {
		return nil, err
	}
	evs := make([]holdfast.Event, len(frames))
	for i, f := range frames {
		evs[i] = f.Event
	}
	return evs, nil
}

// NextFrames is like Next, but returns each event with its encoded form. Readers share the forms of new events, so nobody
// may change one.
func (r *Reader) NextFrames(ctx context.Context) ([]*Frame, error) {
	for {
		select {
		case <-r.closed:
			return nil, io.EOF
		default:
		}
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		pieces, upto, wake := r.ready()
		switch {
		case upto < 0:
			return nil, holdfast.Errorf(holdfast.KindGone, "events", "session %s was deleted", r.feed.id)
		case len(pieces) > 0:
			frames := make([]*Frame, len(pieces))
			for i, p := range pieces {
				frames[i] = p.join() // join copies texts, so it must not run under the feed's lock
			}
			return frames, nil
		case wake == nil:
			evs, err := readPage(ctx, r.j.store, r.feed.id, r.cursor, upto, page)
			if err != nil {
				return nil, err
			}
			frames := make([]*Frame, len(evs))
			for i, e := range evs {
				frames[i] = newFrame(e)
			}
			r.cursor = evs[len(evs)-1].Seq
			return frames, nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
		case <-r.closed:
		}
	}
}

// ready returns the next events and deltas from memory, up to a page. If the next event is only in the store,
// the caller must read it there, up to the number upto. A negative upto means that the session was deleted.
// If there is nothing to return, wake is closed when there is.
func (r *Reader) ready() (out []piece, upto int64, wake <-chan struct{}) {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dropped {
		return nil, -1, nil
	}
	r.next = max(r.next, f.firstDelta)
	for len(out) < page {
		upto = f.head
		if i := r.next - f.firstDelta; i < int64(len(f.deltas)) {
			d := f.deltas[i]
			if d.after <= r.cursor {
				r.next++
				out = add(out, d)
				continue
			}
			upto = d.after // the delta d comes after this event, so read no further
		}
		if r.cursor >= f.head {
			if len(out) == 0 {
				wake = f.waiter()
			}
			return out, 0, wake
		}
		e := f.event(r.cursor)
		if e == nil {
			return out, upto, nil
		}
		out = append(out, piece{frame: e})
		r.cursor = e.Seq
	}
	return out, 0, nil
}

// Ready reports whether the log has events beyond those returned, so that Next would not block.
func (r *Reader) Ready() bool {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	return r.feed.head > r.cursor
}

// Close ends the reader; Next then returns io.EOF. Further calls do nothing.
func (r *Reader) Close() {
	r.once.Do(func() {
		close(r.closed)
		r.j.leave(r.feed)
	})
}

func (j *Journal) join(id holdfast.SessionID) *feed {
	j.mu.Lock()
	defer j.mu.Unlock()
	f := j.feeds[id]
	if f == nil {
		f = newFeed(id, j.lim)
		j.feeds[id] = f
	}
	j.awake(f)
	f.refs.Add(1)
	return f
}

// leave removes a reader from its feed. A feed without readers stays in memory for a while, because the
// session's next turn and reader will need the same events.
func (j *Journal) leave(f *feed) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if f.refs.Add(-1) > 0 || j.feeds[f.id] != f {
		return
	}
	if !f.rest() {
		delete(j.feeds, f.id)
		return
	}
	f.idle = j.idle.PushBack(f)
	if j.idle.Len() > j.lim.idle {
		old := j.idle.Front().Value.(*feed)
		j.awake(old)
		delete(j.feeds, old.id)
	}
}

// awake removes a feed from the list of feeds without readers. The caller holds j.mu.
func (j *Journal) awake(f *feed) {
	if f.idle != nil {
		j.idle.Remove(f.idle)
		f.idle = nil
	}
}

// Drop ends the readers of a deleted session: their Next returns gone. Without it they would wait for ever,
// or continue in the log of a later session with the same id.
func (j *Journal) Drop(id holdfast.SessionID) {
	j.mu.Lock()
	f := j.feeds[id]
	if f != nil {
		j.awake(f)
		delete(j.feeds, id)
	}
	j.mu.Unlock()
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropped = true
	f.signal()
}
