package journal

import (
	"context"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestEveryReaderSeesTheLogOnce draws random interleavings of commits that are written
// long before they return, deltas, and readers that join, read, stall and close.
func TestEveryReaderSeesTheLogOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newMem(sid)
		w := &world{t: rt, m: m, j: New(Config{
			Store: m, Tail: rapid.IntRange(1, 8).Draw(rt, "tail"), DeltaBytes: rapid.IntRange(1, 2000).Draw(rt, "deltas"),
		})}
		m.pageMax = rapid.IntRange(1, 5).Draw(rt, "page")
		w.written = make(chan chan struct{})
		m.written = func(Committed) {
			release := make(chan struct{})
			w.written <- release
			<-release
		}
		rt.Repeat(map[string]func(*rapid.T){
			"commit": w.commit, "answer": w.answer, "delta": w.delta, "join": w.join, "read": w.read, "close": w.close,
		})
		w.finish()
	})
}

// world is one run of the property test.
type world struct {
	t       *rapid.T
	m       *memStore
	j       *Journal
	readers []*watched
	// waiting is a commit that is written and not answered yet; written takes it when it
	// is in the log.
	waiting *held
	written chan chan struct{}
	wrote   int
}

type held struct {
	release chan struct{}
	wg      sync.WaitGroup
}

func (h *held) answer() {
	close(h.release)
	h.wg.Wait()
}

type watched struct {
	*Reader
	seen, joined int64
}

func (w *world) commit(t *rapid.T) {
	if w.waiting != nil {
		t.Skip()
	}
	n := rapid.IntRange(1, 4).Draw(t, "events")
	ctx, h := w.t.Context(), &held{}
	h.wg.Go(func() {
		c := NewChange(sid)
		c.Events = notices(n)
		if _, err := w.j.Commit(ctx, c); err != nil {
			panic(err)
		}
	})
	h.release = <-w.written
	w.waiting = h
	w.wrote += n
}

func (w *world) answer(t *rapid.T) {
	if w.waiting == nil {
		t.Skip()
	}
	w.waiting.answer()
	w.waiting = nil
}

func (w *world) delta(*rapid.T) {
	f := w.j.feed(sid)
	if f == nil {
		return
	}
	f.mu.Lock()
	head := f.head
	f.mu.Unlock()
	// A payload of its own type does not merge and tells where it belongs.
	w.j.Publish(sid, "mark", "t", head)
}

func (w *world) join(t *rapid.T) {
	after := rapid.Int64Range(0, int64(w.wrote)).Draw(t, "after")
	r, err := w.j.Follow(w.t.Context(), sid, after)
	if err != nil {
		t.Fatal(err)
	}
	w.readers = append(w.readers, &watched{Reader: r, seen: after, joined: after})
}

func (w *world) pick(t *rapid.T) (int, *watched) {
	if len(w.readers) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(w.readers)-1).Draw(t, "reader")
	return i, w.readers[i]
}

func (w *world) read(t *rapid.T) {
	_, r := w.pick(t)
	w.step(r)
}

// step reads once and reports whether there was something.
func (w *world) step(r *watched) bool {
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	r.feed.mu.Lock()
	nothing := r.cursor >= r.feed.head && max(r.next, r.feed.firstDelta) == r.feed.firstDelta+int64(len(r.feed.deltas))
	r.feed.mu.Unlock()
	if nothing {
		return false
	}
	evs, err := r.Next(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range evs {
		if e.Type == "mark" {
			var head int64
			if err := e.Decode(&head); err != nil {
				w.t.Fatal(err)
			}
			if r.seen < head || r.seen > max(head, r.joined) {
				w.t.Fatalf("a delta of #%d came after #%d", head, r.seen)
			}
			continue
		}
		if e.Seq != r.seen+1 {
			w.t.Fatalf("#%d after #%d", e.Seq, r.seen)
		}
		r.seen = e.Seq
	}
	return true
}

func (w *world) close(t *rapid.T) {
	i, r := w.pick(t)
	r.Close()
	if _, err := r.Next(w.t.Context()); err != io.EOF {
		t.Fatal(err)
	}
	w.readers = slices.Delete(w.readers, i, i+1)
}

func (w *world) finish() {
	if w.waiting != nil {
		w.waiting.answer()
	}
	for _, r := range w.readers {
		for w.step(r) {
		}
		if r.seen != int64(w.wrote) {
			w.t.Fatalf("a reader ended at #%d of %d", r.seen, w.wrote)
		}
		r.Close()
	}
	unread(w.t, w.j)
}
