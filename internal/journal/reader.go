package journal

import (
	"context"
	"io"
	"sync"

	"github.com/holdfast-run/holdfast"
)

// Reader follows a session: first the log after a sequence number, then what is
// committed from then on without gap or duplicate, deltas in between. One
// consumer; Close from anywhere.
//
// A reader owns no buffer: it is a position in the log and one in the deltas.
// What the session's shared tail no longer has, it reads from the store.
type Reader struct {
	j    *Journal
	feed *feed

	// cursor is the last event handed out, next the number of the next delta.
	cursor, next int64

	once   sync.Once
	closed chan struct{}
}

// Follow opens a reader. not_found for an unknown session. An after beyond the
// log's end, or a negative one, is invalid.
func (j *Journal) Follow(ctx context.Context, id holdfast.SessionID, after int64) (*Reader, error) {
	if after < 0 {
		return nil, badAfter(after, -1)
	}
	// The feed exists before the head is read: a commit that the head does not
	// show yet finds the feed.
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

// Next returns what is new, at least one event, in order; it blocks until there
// is something, ctx ends, the reader is closed (io.EOF), or the session is
// deleted (gone). Other errors are the store's; the position is kept, so the
// caller may try again.
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

// NextFrames is Next with the shared wire form of each event.
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
				frames[i] = p.join() // not under the feed's lock: it may copy a lot
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

// ready takes what memory has, up to a page. When the next event is in the store
// only, it says up to which number to read there (below 0: there is no session
// any more); otherwise how to wait.
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
			upto = d.after // not past the place of the delta
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

// Ready reports whether the log goes on after what was handed out, so that Next
// would not wait.
func (r *Reader) Ready() bool {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	return r.feed.head > r.cursor
}

// Close ends the reader. Idempotent.
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

// leave lets a reader go. The feed of the last one stays for a while: the next
// turn of the session, and its next reader, want the same events.
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

// awake takes a feed from those without readers. j.mu is held.
func (j *Journal) awake(f *feed) {
	if f.idle != nil {
		j.idle.Remove(f.idle)
		f.idle = nil
	}
}

// Drop ends the readers of a session that was deleted: their Next returns gone.
// Without it they would wait for a log that nobody writes, or go on in that of a
// later session with the same id.
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
