package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

func text(j *Journal, turn holdfast.TurnID, s string) { textAt(j, turn, s, 0) }

func textAt(j *Journal, turn holdfast.TurnID, s string, at int64) {
	j.Publish(sid, holdfast.DeltaText, turn, holdfast.TextDelta{Text: s, At: at})
}

func TestDeltasStandWhereTheyWerePublished(t *testing.T) {
	j := New(Config{Store: newMem(sid)})
	mustCommit(t, j, 3)
	text(j, "t", "before the reader came")
	r := follow(t, j, 1)
	text(j, "t", "a")
	mustCommit(t, j, 1)
	j.Publish(sid, holdfast.DeltaThinking, "t", holdfast.TextDelta{Text: "b"})
	mustCommit(t, j, 2)
	text(j, "t", "c")
	var got []string
	for _, e := range until(t, r, 5) {
		got = append(got, fmt.Sprintf("%d%s", e.Seq, e.Type))
	}
	for len(got) < 8 {
		evs, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range evs {
			got = append(got, fmt.Sprintf("%d%s", e.Seq, e.Type))
		}
	}
	want := "2notice 3notice 0text.delta 4notice 0thinking.delta 5notice 6notice 0text.delta"
	if strings.Join(got, " ") != want {
		t.Fatalf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
}

func TestSlowReadersGetDeltasMerged(t *testing.T) {
	j := New(Config{Store: newMem(sid)})
	r := follow(t, j, 0)
	var want strings.Builder
	for i := range 100 {
		textAt(j, "t1", fmt.Sprint(i, "<"), int64(want.Len()))
		want.WriteString(fmt.Sprint(i, "<"))
	}
	text(j, "t1", "an answer anew")
	textAt(j, "t1", " with a gap", 20)
	text(j, "t2", "other turn")
	j.Publish(sid, holdfast.DeltaThinking, "t2", holdfast.TextDelta{Text: "other type"})
	for _, s := range []string{"stdout", "stdout", "stderr", "stdout"} {
		j.Publish(sid, holdfast.DeltaToolOutput, "t2", holdfast.ToolOutput{ToolUseID: "u1", Stream: s, Text: s[3:]})
	}
	j.Publish(sid, holdfast.DeltaToolOutput, "t2", holdfast.ToolOutput{ToolUseID: "u2", Stream: "stdout", Text: "x"})
	j.Publish(sid, "new.delta", "t2", map[string]int{"a": 1})
	j.Publish(sid, "new.delta", "t2", map[string]int{"a": 2})
	evs, err := r.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range evs {
		got = append(got, string(e.Data))
	}
	wantAll := []string{
		`{"text":"` + want.String() + `"}`, `{"text":"an answer anew"}`, `{"text":" with a gap","at":20}`, `{"text":"other turn"}`, `{"text":"other type"}`,
		`{"tool_use_id":"u1","stream":"stdout","text":"outout"}`, `{"tool_use_id":"u1","stream":"stderr","text":"err"}`,
		`{"tool_use_id":"u1","stream":"stdout","text":"out"}`, `{"tool_use_id":"u2","stream":"stdout","text":"x"}`,
		`{"a":1}`, `{"a":2}`,
	}
	if !slices.Equal(got, wantAll) {
		t.Fatalf("got  %q\nwant %q", got, wantAll)
	}
	idle(t, r)
}

func TestASH15_DeltasOfAReaderAreCapped(t *testing.T) {
	const limit = 8 << 10
	j := New(Config{Store: newMem(sid), DeltaBytes: limit})
	r := follow(t, j, 0)
	for i := range 10_000 {
		textAt(j, "t", fmt.Sprintf("%05d ", i), int64(6*i))
	}
	r.feed.mu.Lock()
	if r.feed.deltaBytes > limit || len(r.feed.deltas) > limit/deltaOverhead {
		t.Errorf("%d deltas, %d bytes are kept", len(r.feed.deltas), r.feed.deltaBytes)
	}
	r.feed.mu.Unlock()
	evs, err := r.Next(t.Context())
	if err != nil || len(evs) != 1 {
		t.Fatalf("%d deltas, %v", len(evs), err)
	}
	var d holdfast.TextDelta
	if err := evs[0].Decode(&d); err != nil || d.At != int64(60_000-len(d.Text)) || !strings.HasSuffix(d.Text, "09998 09999 ") || len(d.Text) > limit {
		t.Fatalf("the newest text is not there: %d bytes, %v", len(d.Text), err)
	}
	// One that is larger than all that may wait is dropped, not kept for ever.
	text(j, "t", strings.Repeat("x", limit))
	idle(t, r)
	mustCommit(t, j, 1)
	dense(t, until(t, r, 1), 1)
}

func TestADeltaThatDoesNotMarshalIsDropped(t *testing.T) {
	j := New(Config{Store: newMem(sid)})
	r := follow(t, j, 0)
	j.Publish(sid, holdfast.DeltaText, "t", make(chan int))
	idle(t, r)
}

func TestASH15_StalledReadersCostTheWriterNothing(t *testing.T) {
	m := newMem(sid)
	j := New(Config{Store: m, Tail: 16})
	stalled := follow(t, j, 0)
	for range 500 {
		mustCommit(t, j, 2)
		text(j, "t", strings.Repeat("x", 1000))
	}
	f := stalled.feed
	f.mu.Lock()
	if len(f.tail) > 16 || f.deltaBytes > 64<<10 {
		t.Errorf("kept: %d events, %d bytes of deltas", len(f.tail), f.deltaBytes)
	}
	f.mu.Unlock()
	dense(t, until(t, stalled, 1000), 1)
	if m.reads == 0 {
		t.Error("the stalled reader did not use the store")
	}
}

func TestASH15_TailIsBoundInBytes(t *testing.T) {
	j := New(Config{Store: newMem(sid)})
	r := follow(t, j, 0)
	for range 10 {
		c := NewChange(sid)
		c.Events = []Draft{{Type: holdfast.EventNotice, Data: strings.Repeat("x", 100<<10)}}
		if _, err := j.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.feed.tailBytes; n > tailBytes {
		t.Fatalf("the tail holds %d bytes", n)
	}
	dense(t, until(t, r, 10), 1)
	c := NewChange(sid)
	c.Events = []Draft{{Type: holdfast.EventNotice, Data: strings.Repeat("x", 3<<20)}}
	if _, err := j.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if len(r.feed.tail) != 1 {
		t.Fatalf("the tail holds %d events", len(r.feed.tail))
	}
	dense(t, until(t, r, 1), 11)
}

func TestReadersShareOneEncoding(t *testing.T) {
	j := New(Config{Store: newMem(sid)})
	a, b := follow(t, j, 0), follow(t, j, 0)
	c := NewChange(sid)
	c.Events = []Draft{{Type: holdfast.EventMessageUser, Turn: "t", Data: holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "<&>\n"}}}}}
	done, err := j.Commit(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	text(j, "t", "d")
	var frames [2][]*Frame
	for i, r := range []*Reader{a, b} {
		if frames[i], err = r.NextFrames(t.Context()); err != nil || len(frames[i]) != 2 {
			t.Fatalf("%d frames, %v", len(frames[i]), err)
		}
	}
	for i := range frames[0] {
		x, y := frames[0][i].JSON(), frames[1][i].JSON()
		if &x[0] != &y[0] {
			t.Error("the event was encoded twice")
		}
		if bytes.IndexByte(x, '\n') >= 0 {
			t.Errorf("%q is not one line", x)
		}
	}
	var back holdfast.Event
	if err := json.Unmarshal(frames[0][0].JSON(), &back); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(back), fmt.Sprint(done.Events[0]); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestFrameIsTheEventsJSON: a frame that is put together by hand is what the encoder makes of
// the event. A new field of Event turns it red.
//
// WS-R86.
func TestFrameIsTheEventsJSON(t *testing.T) {
	var full holdfast.Event
	fields := reflect.ValueOf(&full).Elem()
	for i := range fields.NumField() {
		switch f := fields.Field(i); f.Interface().(type) {
		case json.RawMessage:
			f.SetBytes([]byte(`{"text":"<&>\\n\u2028"}`))
		case time.Time:
			f.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 67e6, time.UTC)))
		case int64:
			f.SetInt(1 << 40)
		default:
			f.SetString("a<\"\\\n\u00e9\xff\x7f")
		}
	}
	plain := holdfast.Event{Session: sid, Type: "notice", Data: json.RawMessage("{}"), Time: time.Unix(0, 0).UTC()}
	for _, e := range []holdfast.Event{full, plain} {
		want, err := marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if got := encodedFrame(e).JSON(); string(got) != string(want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestFrameOfDamagedData(t *testing.T) {
	f := newFrame(holdfast.Event{Session: sid, Seq: 7, Type: "x", Data: json.RawMessage("{")})
	var back holdfast.Event
	if err := json.Unmarshal(f.JSON(), &back); err != nil || back.Seq != 7 || string(back.Data) != `{"damaged":true}` {
		t.Fatalf("%s: %v", f.JSON(), err)
	}
}

// TestOneChangeOfASessionAtATime: a change waits for the one before it of its session, and
// for that of no other session.
func TestOneChangeOfASessionAtATime(t *testing.T) {
	const other = holdfast.SessionID("01890a5d-ac96-774b-bcce-b302099a8058")
	m := newMem(sid, other)
	j := New(Config{Store: m})
	wrote, release := make(chan struct{}), make(chan struct{})
	m.written = func(c Committed) {
		if c.Row.ID == sid && c.Events[0].Seq == 1 {
			close(wrote)
			<-release
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { mustCommit(t, j, 2) })
	<-wrote
	c := NewChange(other)
	c.Events = notices(1)
	if _, err := j.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	began := make(chan struct{})
	wg.Go(func() {
		close(began)
		done, err := j.CommitAt(t.Context(), sid, func(row Row, c *Change) error {
			c.Events = notices(1)
			if row.LastSeq != 2 || c.LastSeq != 2 {
				t.Errorf("the change was made from a log that ends at %d, expected at %d", row.LastSeq, c.LastSeq)
			}
			return nil
		})
		if err != nil || len(done.Events) != 1 || done.Events[0].Seq != 3 {
			t.Errorf("%+v %v", done, err)
		}
	})
	<-began
	if head, err := m.Head(t.Context(), sid); err != nil || head != 2 {
		t.Errorf("the log ends at %d, %v", head, err)
	}
	close(release)
	wg.Wait()
	if len(j.writers.at) != 0 {
		t.Errorf("%d locks are kept", len(j.writers.at))
	}
}

// TestCommitAtWritesOnTheRowItSaw while others commit to the same session.
func TestCommitAtWritesOnTheRowItSaw(t *testing.T) {
	m := newMem(sid)
	j := New(Config{Store: m})
	var wg sync.WaitGroup
	for range 50 {
		var saw int64
		done, err := j.CommitAt(t.Context(), sid, func(row Row, c *Change) error {
			wg.Go(func() { mustCommit(t, j, 1) })
			for range 200 {
				runtime.Gosched() // the other commit has its chance
			}
			saw, c.Events = row.LastSeq, notices(1)
			return nil
		})
		if err != nil || done.Events[0].Seq != saw+1 {
			t.Errorf("written on #%d, %v: #%d", saw, err, done.Events[0].Seq)
		}
		wg.Wait()
	}
}

// TestCommitAtWritesNothing where build refuses, or has nothing to write.
func TestCommitAtWritesNothing(t *testing.T) {
	m := newMem(sid)
	j := New(Config{Store: m})
	mustCommit(t, j, 1)
	refused := holdfast.Errorf(holdfast.KindConflict, "test", "refused")
	for _, want := range []error{nil, refused} {
		done, err := j.CommitAt(t.Context(), sid, func(Row, *Change) error { return want })
		if err != want || done.Row.LastSeq != 1 || len(done.Events) != 0 {
			t.Errorf("%+v %v", done, err)
		}
	}
	mustCommit(t, j, 1)
}

// A commit that started before the readers were replaced finds the new ones.
func TestCommitFindsReadersThatCameMeanwhile(t *testing.T) {
	for _, before := range []bool{true, false} {
		m := newMem(sid)
		j := New(Config{Store: m})
		var old, now *Reader
		if before {
			old = follow(t, j, 0)
		}
		m.written = func(Committed) {
			if before {
				old.Close()
			}
			now = follow(t, j, 0)
			now.feed.mu.Lock()
			now.feed.head = 0 // as if its look at the store came before the write
			now.feed.mu.Unlock()
		}
		mustCommit(t, j, 1)
		dense(t, until(t, now, 1), 1)
		idle(t, now)
	}
}

func TestDropEndsReaders(t *testing.T) {
	m := newMem(sid)
	j := New(Config{Store: m})
	j.Drop(sid) // nobody there
	mustCommit(t, j, 5)
	waiting, behind := follow(t, j, 5), follow(t, j, 0)
	errs := make(chan error)
	go func() { _, err := waiting.Next(t.Context()); errs <- err }()
	eventually(t, "the reader waits", func() bool {
		waiting.feed.mu.Lock()
		defer waiting.feed.mu.Unlock()
		return waiting.feed.wake != nil
	})
	m.set(func() { m.logs[sid] = nil })
	j.Drop(sid)
	if err := <-errs; !holdfast.IsKind(err, holdfast.KindGone) || !strings.Contains(err.Error(), string(sid)) {
		t.Errorf("waiting: %v", err)
	}
	if _, err := behind.Next(t.Context()); !holdfast.IsKind(err, holdfast.KindGone) {
		t.Errorf("behind: %v", err)
	}
	// The id is used again: the new log is for new readers only, and the old ones
	// take nothing with them when they close.
	now := follow(t, j, 0)
	mustCommit(t, j, 2)
	waiting.Close()
	behind.Close()
	mustCommit(t, j, 1)
	dense(t, until(t, now, 3), 1)
	now.Close()
	unread(t, j)
}

// TestConcurrentReadersAndWriters is for the race detector.
func TestConcurrentReadersAndWriters(t *testing.T) {
	m := newMem(sid)
	m.pageMax = 10
	j := New(Config{Store: m, Tail: 8, DeltaBytes: 1 << 10})
	const writers, each, readers = 4, 100, 12
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				mustCommit(t, j, 2)
				text(j, "t", "x")
			}
		})
	}
	for i := range readers {
		rnd := rand.New(rand.NewPCG(1, uint64(i)))
		wg.Go(func() {
			for seen := int64(0); seen < 2*writers*each; {
				r, err := j.Follow(ctx, sid, seen)
				if err != nil {
					t.Error(err)
					return
				}
				for n := rnd.IntN(40) + 1; n > 0 && seen < 2*writers*each; n-- {
					frames, err := r.NextFrames(ctx)
					if err != nil {
						t.Error(err)
						break
					}
					for _, f := range frames {
						if f.Seq == 0 {
							continue
						}
						if f.Seq != seen+1 {
							t.Errorf("reader %d: #%d after #%d", i, f.Seq, seen)
							cancel()
						}
						seen = f.Seq
						f.JSON()
					}
				}
				r.Close()
			}
		})
	}
	wg.Wait()
	unread(t, j)
}
