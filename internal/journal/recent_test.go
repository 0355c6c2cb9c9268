package journal

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// unread checks that no feed believes that it has a reader, and that only as many
// are kept as may be.
func unread(t interface {
	Helper()
	Errorf(string, ...any)
}, j *Journal,
) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, f := range j.feeds {
		if n := f.refs.Load(); n != 0 || f.idle == nil {
			t.Errorf("the feed of %s has %d readers, resting %v", id, n, f.idle != nil)
		}
	}
	if n := j.idle.Len(); n != len(j.feeds) || n > j.lim.idle {
		t.Errorf("%d feeds rest, %d are kept, %d may be", n, len(j.feeds), j.lim.idle)
	}
}

// TestFeedsRest: after its last reader a session's newest events stay in memory,
// few of them, without deltas, and for few sessions.
func TestFeedsRest(t *testing.T) {
	m := newMem(sid)
	j := New(Config{Store: m, Idle: 2})
	r, err := j.Follow(t.Context(), sid, 0)
	if err != nil {
		t.Fatal(err)
	}
	commit := func(text string) {
		t.Helper()
		c := NewChange(sid)
		c.Events = []Draft{{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: "x", Text: text}}}
		if _, err := j.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	commit("one")
	j.Publish(sid, holdfast.DeltaText, "", holdfast.TextDelta{Text: "a delta"})
	r.Close()
	j.Publish(sid, holdfast.DeltaText, "", holdfast.TextDelta{Text: "nobody hears this"})
	commit("two")
	reads := m.reads
	n := 0
	for e, err := range j.Read(t.Context(), sid, 0) {
		if n++; err != nil || e.Seq != int64(n) {
			t.Fatal(e, err)
		}
	}
	if n != 2 || m.reads != reads {
		t.Errorf("%d events, the store was asked %d times", n, m.reads-reads)
	}
	if r, err = j.Follow(t.Context(), sid, 1); err != nil {
		t.Fatal(err)
	}
	evs, err := r.Next(t.Context())
	if err != nil || len(evs) != 1 || evs[0].Seq != 2 {
		t.Errorf("a new reader got %+v, %v", evs, err)
	}
	r.Close()
	for range 40 {
		commit(strings.Repeat("x", 2000))
	}
	if f := j.feed(sid); f.tailBytes > idleBytes || len(f.tail) == 0 {
		t.Errorf("a resting feed holds %d bytes in %d events", f.tailBytes, len(f.tail))
	}
	commit(strings.Repeat("x", 2*idleBytes))
	if f := j.feed(sid); f.tailBytes != 0 || len(f.tail) != 0 {
		t.Errorf("a resting feed holds an event of %d bytes", f.tailBytes)
	}
	for i := range 3 {
		id := holdfast.SessionID(fmt.Sprintf("%s%d", sid[:len(sid)-1], i+1))
		m.logs[id] = nil
		r, err := j.Follow(t.Context(), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
	unread(t, j)
	if j.feed(sid) != nil {
		t.Error("the feed left first is still there")
	}
}

// TestReadTakesFromMemoryWhatReadersHold: with a reader there, the newest events
// are not asked of the store; older ones are, and nothing is missing in between.
func TestReadTakesFromMemoryWhatReadersHold(t *testing.T) {
	m := newMem(sid)
	j := New(Config{Store: m})
	commit := func(n int) {
		t.Helper()
		c := NewChange(sid)
		c.Events = notices(n)
		if _, err := j.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	commit(3)
	r, err := j.Follow(t.Context(), sid, 3)
	if err != nil {
		t.Fatal(err)
	}
	if r.Ready() {
		t.Error("a reader at the end of the log is ready")
	}
	commit(2)
	if !r.Ready() {
		t.Error("two events are there and the reader is not ready")
	}
	seqs := func(after int64) (out []int64) {
		t.Helper()
		for e, err := range j.Read(t.Context(), sid, after) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, e.Seq)
		}
		return out
	}
	if got := seqs(0); len(got) != 5 || got[0] != 1 || got[4] != 5 {
		t.Errorf("the whole log is %v", got)
	}
	m.mu.Lock()
	before := m.reads
	m.mu.Unlock()
	if got := seqs(3); len(got) != 2 || got[0] != 4 {
		t.Errorf("after 3 comes %v", got)
	}
	m.mu.Lock()
	asked := m.reads - before
	m.mu.Unlock()
	if asked != 0 {
		t.Errorf("the store was asked %d times for what is in memory", asked)
	}
	r.Close()
	if got := seqs(3); len(got) != 2 {
		t.Errorf("without a reader: %v", got)
	}
	j.Drop(sid)
}
