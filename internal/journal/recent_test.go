package journal

import (
	"testing"
)

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
