package journal

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCommitMarshals(t *testing.T) {
	m := newMem(sid)
	j := New(Config{Store: m})
	c := NewChange(sid)
	c.Events = []Draft{
		{Type: holdfast.EventMessageUser, Turn: "t1", Data: holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "<b> & \u2028 \xff"}}}},
		{Type: holdfast.EventNotice},
		{Type: holdfast.EventToolRequested, Data: holdfast.ToolRequested{Input: json.RawMessage("{ \"a\" : 1 }")}},
	}
	done, err := j.Commit(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		`{"parts":[{"type":"text","text":"<b> & \u2028 \ufffd"}]}`, `{}`, `{"tool_use_id":"","name":"","input":{"a":1}}`,
	} {
		if got := string(done.Events[i].Data); got != want {
			t.Errorf("payload %d is %s, want %s", i, got, want)
		}
	}
	if done.Events[0].Turn != "t1" || done.Events[2].Seq != 3 {
		t.Errorf("events %+v", done.Events)
	}
}

func TestCommitRefusesWhatIsNoJSON(t *testing.T) {
	m := newMem(sid)
	j := New(Config{Store: m})
	r := follow(t, j, 0)
	for _, data := range []any{make(chan int), json.RawMessage("{"), func() {}} {
		c := NewChange(sid)
		c.Events = append(notices(1), Draft{Type: "odd", Data: data})
		_, err := j.Commit(t.Context(), c)
		if !holdfast.IsKind(err, holdfast.KindInternal) || !strings.Contains(err.Error(), `"odd"`) {
			t.Errorf("%T: %v", data, err)
		}
	}
	if head, err := m.Head(t.Context(), sid); err != nil || head != 0 {
		t.Fatalf("head %d, %v", head, err)
	}
	idle(t, r)
}

// WS-P1.
func TestCommitErrorReachesNoReader(t *testing.T) {
	m := newMem(sid)
	j := New(Config{Store: m})
	r := follow(t, j, 0)
	m.fail = holdfast.Errorf(holdfast.KindConflict, "store", "no")
	c := NewChange(sid)
	c.Events = notices(1)
	if _, err := j.Commit(t.Context(), c); !errors.Is(err, m.fail) {
		t.Fatal(err)
	}
	idle(t, r)
	m.set(func() { m.fail = nil })
	mustCommit(t, j, 2)
	dense(t, until(t, r, 2), 1)
}

// A store can lose the connection after it wrote: the answer is an error, the
// events are there. The next commit must not leave a hole at the readers.
func TestReadersGetWhatAFailedCommitWrote(t *testing.T) {
	m := newMem(sid)
	m.pageMax = 1
	j := New(Config{Store: m})
	r := follow(t, j, 0)
	mustCommit(t, j, 1)
	m.set(func() { m.fail, m.failLate = errors.New("connection lost"), true })
	c := NewChange(sid)
	c.Events = notices(3)
	if _, err := j.Commit(t.Context(), c); err == nil {
		t.Fatal("no error")
	}
	m.set(func() { m.fail = nil })
	mustCommit(t, j, 1)
	dense(t, until(t, r, 5), 1)
	idle(t, r)
}

func TestReadPages(t *testing.T) {
	m := newMem(sid)
	j := New(Config{Store: m})
	const all = page + 3*longPage + 7
	mustCommit(t, j, all)
	// A store that cuts pages at 300 makes the pages that are read ahead begin in wrong places.
	for _, pageMax := range []int{0, 1, 100, 300} {
		m.pageMax = pageMax
		for _, after := range []int64{0, 1, page, page + longPage, all - 1, all, 99_999} {
			next := after + 1
			for e, err := range j.Read(t.Context(), sid, after) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Seq != next {
					t.Fatalf("#%d where #%d was expected", e.Seq, next)
				}
				next++
			}
			if want := max(after, all) + 1; next != want {
				t.Fatalf("after %d the log ended at #%d, want #%d", after, next-1, want-1)
			}
		}
	}
}

func TestReadEndsAtThePresentEnd(t *testing.T) {
	j := New(Config{Store: newMem(sid)})
	mustCommit(t, j, 3)
	n := 0
	for range j.Read(t.Context(), sid, 0) {
		if n++; n > 3 {
			t.Fatal("Read follows its own log")
		}
		mustCommit(t, j, 1)
	}
	for e := range j.Read(t.Context(), sid, 0) {
		if e.Seq != 1 {
			t.Fatal("not stopped")
		}
		break
	}
}

func TestReadErrors(t *testing.T) {
	m := newMem(sid)
	j := New(Config{Store: m})
	mustCommit(t, j, 10)
	first := func(id holdfast.SessionID, after int64) error {
		n := 0
		var got error
		for _, err := range j.Read(t.Context(), id, after) {
			n++
			got = err
		}
		if n != 1 {
			t.Fatalf("%d results", n)
		}
		return got
	}
	if err := first("nobody", 0); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Error(err)
	}
	if err := first(sid, -5); !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), `"-5"`) {
		t.Error(err)
	}
	m.readFail = errors.New("disk")
	if err := first(sid, 0); !errors.Is(err, m.readFail) {
		t.Error(err)
	}
	m.readFail = nil
	m.logs[sid][4].Seq = 6
	got := int64(0)
	var last error
	for e, err := range j.Read(t.Context(), sid, 0) {
		if last = err; err == nil {
			got = e.Seq
		}
	}
	if got != 0 || !holdfast.IsKind(last, holdfast.KindInternal) || !strings.Contains(last.Error(), "#5") {
		t.Errorf("a hole passed: up to #%d, %v", got, last)
	}
}

func TestReadOfALogThatShrinks(t *testing.T) {
	m := newMem(sid)
	m.pageMax = 2
	j := New(Config{Store: m})
	mustCommit(t, j, 6)
	var last error
	for e, err := range j.Read(t.Context(), sid, 0) {
		if last = err; e.Seq == 2 {
			m.set(func() { m.logs[sid] = m.logs[sid][:2] })
		}
	}
	if !holdfast.IsKind(last, holdfast.KindInternal) {
		t.Errorf("cut log: %v", last)
	}
	mustCommit(t, j, 6)
	for e, err := range j.Read(t.Context(), sid, 0) {
		if last = err; e.Seq == 2 {
			m.set(func() { delete(m.logs, sid) })
		}
	}
	if !holdfast.IsKind(last, holdfast.KindNotFound) {
		t.Errorf("deleted session: %v", last)
	}
}

func TestFollowRefuses(t *testing.T) {
	j := New(Config{Store: newMem(sid)})
	mustCommit(t, j, 3)
	for _, c := range []struct {
		id    holdfast.SessionID
		after int64
		kind  holdfast.Kind
		say   string
	}{
		{"nobody", 0, holdfast.KindNotFound, "nobody"},
		{sid, 4, holdfast.KindInvalid, `"4"`},
		{sid, 1 << 62, holdfast.KindInvalid, `"4611686018427387904"`},
		{sid, -1, holdfast.KindInvalid, `"-1"`},
	} {
		_, err := j.Follow(t.Context(), c.id, c.after)
		if !holdfast.IsKind(err, c.kind) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("after %d: %v", c.after, err)
		}
		if c.kind == holdfast.KindInvalid && holdfast.HintOf(err) == "" {
			t.Errorf("after %d: no hint", c.after)
		}
	}
	if len(j.feeds) != 0 {
		t.Errorf("%d feeds are left", len(j.feeds))
	}
}

func TestFollowGoesFromReplayToLive(t *testing.T) {
	m := newMem(sid)
	j := New(Config{Store: m, Tail: 4})
	mustCommit(t, j, 600)
	for _, after := range []int64{0, 1, 300, 599, 600} {
		r := follow(t, j, after)
		mustCommit(t, j, 3)
		n := len(m.logs[sid]) - int(after)
		dense(t, until(t, r, n), after+1)
		idle(t, r)
		r.Close()
	}
}

func TestNextBlocksUntilThereIsSomething(t *testing.T) {
	j := New(Config{Store: newMem(sid)})
	r := follow(t, j, 0)
	got := make(chan []holdfast.Event)
	go func() {
		evs, err := r.Next(t.Context())
		if err != nil {
			t.Error(err)
		}
		got <- evs
	}()
	eventually(t, "the reader waits", func() bool {
		r.feed.mu.Lock()
		defer r.feed.mu.Unlock()
		return r.feed.wake != nil
	})
	mustCommit(t, j, 1)
	if evs := <-got; len(evs) != 1 || evs[0].Seq != 1 {
		t.Fatalf("got %v", evs)
	}
}

func TestNextEnds(t *testing.T) {
	j := New(Config{Store: newMem(sid)})
	waiting := func(r *Reader) func() bool {
		return func() bool {
			r.feed.mu.Lock()
			defer r.feed.mu.Unlock()
			return r.feed.wake != nil
		}
	}
	r := follow(t, j, 0)
	errs := make(chan error)
	next := func(ctx context.Context) { _, err := r.Next(ctx); errs <- err }
	go next(t.Context())
	eventually(t, "the reader waits", waiting(r))
	r.Close()
	r.Close()
	if err := <-errs; err != io.EOF {
		t.Errorf("closed: %v", err)
	}
	if _, err := r.Next(t.Context()); err != io.EOF {
		t.Errorf("after Close: %v", err)
	}
	r = follow(t, j, 0)
	why := errors.New("client gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	go next(ctx)
	eventually(t, "the reader waits", waiting(r))
	cancel(why)
	if err := <-errs; !errors.Is(err, why) {
		t.Errorf("cancelled: %v", err)
	}
	// A cancelled Next takes nothing: the next one has it all.
	mustCommit(t, j, 2)
	if _, err := r.Next(ctx); !errors.Is(err, why) {
		t.Errorf("still cancelled: %v", err)
	}
	dense(t, until(t, r, 2), 1)
}

func TestNextKeepsItsPlaceWhenTheStoreFails(t *testing.T) {
	m := newMem(sid)
	j := New(Config{Store: m})
	mustCommit(t, j, 10)
	r := follow(t, j, 3)
	m.readFail = holdfast.Errorf(holdfast.KindUnavailable, "store", "busy")
	if _, err := r.Next(t.Context()); !errors.Is(err, m.readFail) {
		t.Fatal(err)
	}
	m.set(func() { m.readFail = nil })
	dense(t, until(t, r, 7), 4)
}

func TestLittleIsKeptForSessionsWithoutReaders(t *testing.T) {
	j := New(Config{Store: newMem(sid)})
	mustCommit(t, j, 100)
	var count marshalCount
	j.Publish(sid, holdfast.DeltaText, "t", &count)
	if len(j.feeds) != 0 || count != 0 {
		t.Fatalf("%d feeds, %d payloads marshalled", len(j.feeds), count)
	}
	a, b := follow(t, j, 0), follow(t, j, 50)
	if len(j.feeds) != 1 {
		t.Fatalf("%d feeds for one session", len(j.feeds))
	}
	a.Close()
	mustCommit(t, j, 1)
	dense(t, until(t, b, 51), 51)
	b.Close()
	unread(t, j)
	if j.Publish(sid, holdfast.DeltaText, "t", &count); count != 0 {
		t.Errorf("%d payloads marshalled for nobody", count)
	}
	mustCommit(t, j, 1)
	dense(t, until(t, follow(t, j, 0), 102), 1)
}

// marshalCount is a payload that knows how often it was marshalled.
type marshalCount int

func (c *marshalCount) MarshalJSON() ([]byte, error) {
	*c++
	return []byte("{}"), nil
}

func TestDeltasCarryTheClock(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_999_999, time.FixedZone("", 3600))
	j := New(Config{Store: newMem(sid), Clock: func() time.Time { return at }})
	r := follow(t, j, 0)
	j.Publish(sid, holdfast.DeltaText, "t1", holdfast.TextDelta{Text: "hi"})
	evs, err := r.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := holdfast.Event{
		Session: sid, Type: holdfast.DeltaText, Turn: "t1", Data: json.RawMessage(`{"text":"hi"}`),
		Time: time.Date(2026, 1, 2, 2, 4, 5, 678_000_000, time.UTC),
	}
	got, _ := json.Marshal(evs)
	if wantJSON, _ := json.Marshal([]holdfast.Event{want}); string(got) != string(wantJSON) {
		t.Fatalf("got %s, want %s", got, wantJSON)
	}
}
