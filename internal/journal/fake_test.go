package journal

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

// memStore is a store in memory. It can hold back answers, cut pages short, and
// fail.
type memStore struct {
	mu    sync.Mutex
	logs  map[holdfast.SessionID][]holdfast.Event
	reads int
	// pageMax cuts pages, 0 does not.
	pageMax int
	// written, if set, runs after a change is in the log and before it is answered.
	written func(Committed)
	// fail is returned by Commit (after writing, with failLate) and reads by Events.
	fail, readFail error
	failLate       bool
}

func newMem(ids ...holdfast.SessionID) *memStore {
	m := &memStore{logs: make(map[holdfast.SessionID][]holdfast.Event)}
	for _, id := range ids {
		m.logs[id] = nil
	}
	return m
}

func (m *memStore) Commit(_ context.Context, c Encoded) (Committed, error) {
	m.mu.Lock()
	if m.fail != nil && !m.failLate {
		defer m.mu.Unlock()
		return Committed{}, m.fail
	}
	log, ok := m.logs[c.Session]
	if !ok && c.Create == nil {
		defer m.mu.Unlock()
		return Committed{}, holdfast.Errorf(holdfast.KindNotFound, "fake", "no session %s", c.Session)
	}
	var done Committed
	for i, d := range c.Events {
		done.Events = append(done.Events, holdfast.Event{
			Session: c.Session, Seq: int64(len(log) + i + 1), Type: d.Type, Turn: d.Turn, Agent: d.Agent, Data: c.Data[i],
			Time: time.UnixMilli(1_700_000_000_000).UTC(),
		})
	}
	m.logs[c.Session] = append(log, done.Events...)
	done.Row.ID, done.Row.LastSeq = c.Session, int64(len(m.logs[c.Session]))
	written, fail := m.written, m.fail
	m.mu.Unlock()
	if written != nil {
		written(done)
	}
	if fail != nil {
		return Committed{}, fail
	}
	return done, nil
}

func (m *memStore) Events(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]holdfast.Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	if m.readFail != nil {
		return nil, m.readFail
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	log := m.logs[id]
	if m.pageMax > 0 {
		limit = min(limit, m.pageMax)
	}
	if after >= int64(len(log)) {
		return nil, nil
	}
	return append([]holdfast.Event{}, log[after:min(int64(len(log)), after+int64(limit))]...), nil
}

func (m *memStore) Head(_ context.Context, id holdfast.SessionID) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	log, ok := m.logs[id]
	if !ok {
		return 0, holdfast.Errorf(holdfast.KindNotFound, "fake", "no session %s", id)
	}
	return int64(len(log)), nil
}

func (m *memStore) Row(ctx context.Context, id holdfast.SessionID) (Row, error) {
	head, err := m.Head(ctx, id)
	return Row{Session: holdfast.Session{ID: id, LastSeq: head}}, err
}

func (m *memStore) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

const sid = holdfast.SessionID("01890a5d-ac96-774b-bcce-b302099a8057")

func notices(n int) []Draft {
	out := make([]Draft, n)
	for i := range out {
		out[i] = Draft{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: "test", Text: fmt.Sprint(i)}}
	}
	return out
}

func mustCommit(t testing.TB, j *Journal, n int) Committed {
	t.Helper()
	c := NewChange(sid)
	c.Events = notices(n)
	done, err := j.Commit(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func follow(t testing.TB, j *Journal, after int64) *Reader {
	t.Helper()
	r, err := j.Follow(t.Context(), sid, after)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// until reads until n events have come and returns them with the deltas between.
func until(t testing.TB, r *Reader, n int) []holdfast.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out []holdfast.Event
	for got := 0; got < n; {
		evs, err := r.Next(ctx)
		if err != nil {
			t.Fatalf("after %d of %d events: %v", got, n, err)
		}
		if len(evs) == 0 {
			t.Fatal("Next returned nothing")
		}
		for _, e := range evs {
			if e.Seq > 0 {
				got++
			}
		}
		out = append(out, evs...)
	}
	return out
}

// idle asserts that a reader has nothing more now.
func idle(t testing.TB, r *Reader) {
	t.Helper()
	if pieces, upto, wake := r.ready(); len(pieces) > 0 || wake == nil {
		t.Fatalf("the reader has %d pieces, and more up to #%d", len(pieces), upto)
	}
}

func seqs(evs []holdfast.Event) []int64 {
	var out []int64
	for _, e := range evs {
		out = append(out, e.Seq)
	}
	return out
}

// dense asserts that the numbered events are first, first+1, … and that none is
// missing or doubled.
func dense(t testing.TB, evs []holdfast.Event, first int64) int64 {
	t.Helper()
	for _, e := range evs {
		if e.Seq == 0 {
			continue
		}
		if e.Seq != first {
			t.Fatalf("#%d where #%d was expected in %v", e.Seq, first, seqs(evs))
		}
		first++
	}
	return first
}

// eventually polls a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-tick.C
	}
}
