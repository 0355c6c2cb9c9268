package conversation_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/conversation"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// book is a log being written, an event a second.
type book struct {
	events []holdfast.Event
	turn   holdfast.TurnID
}

func (b *book) add(typ holdfast.EventType, data any) int64 {
	raw, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	seq := int64(len(b.events) + 1)
	b.events = append(b.events, holdfast.Event{Seq: seq, Type: typ, Turn: b.turn, Data: raw, Time: start.Add(time.Duration(seq) * time.Second)})
	return seq
}

func (b *book) begin(text string) {
	b.turn = holdfast.TurnID(fmt.Sprint("turn", len(b.events)))
	b.add(holdfast.EventMessageUser, holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: text}}})
	b.add(holdfast.EventTurnStarted, holdfast.TurnStartedData{})
}

func (b *book) says(text string, uses ...string) {
	m := holdfast.AssistantMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: text}}, Usage: holdfast.Usage{OutputTokens: 10}}
	for _, u := range uses {
		m.Parts = append(m.Parts, holdfast.Part{Type: holdfast.PartToolUse, ToolUseID: u})
	}
	b.add(holdfast.EventMessageAssistant, m)
	for _, u := range uses {
		b.add(holdfast.EventToolRequested, holdfast.ToolRequested{ToolUseID: u, Name: "Bash", Input: json.RawMessage(`{}`)})
	}
}

func (b *book) after(seq int64) iter.Seq2[holdfast.Event, error] {
	return func(yield func(holdfast.Event, error) bool) {
		for _, ev := range b.events[min(int(seq), len(b.events)):] {
			if !yield(ev, nil) {
				return
			}
		}
	}
}

func (b *book) read(t interface{ Fatal(...any) }) *conversation.Conversation {
	c, err := conversation.Read(b.after(0))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestUsesOfAnAnswer(t *testing.T) {
	b := &book{}
	b.begin("go")
	b.says("let me see", "a", "b", "c", "d", "e")
	b.add(holdfast.EventToolAllowed, holdfast.ToolDecision{ToolUseID: "a", Input: json.RawMessage(`{"x":1}`)})
	b.add(holdfast.EventToolStarted, holdfast.ToolStarted{ToolUseID: "b", Call: "call"})
	b.add(holdfast.EventToolFinished, holdfast.ToolFinished{ToolUseID: "c", Content: "done", IsError: true})
	b.add(holdfast.EventToolDenied, holdfast.ToolDecision{ToolUseID: "d", Reason: "no"})
	b.add(holdfast.EventToolUnknown, holdfast.ToolUnknown{ToolUseID: "e", Reason: "lost"})
	// What comes twice counts once, and what nobody asked for says nothing.
	b.add(holdfast.EventToolFinished, holdfast.ToolFinished{ToolUseID: "d", Content: "x"})
	b.add(holdfast.EventToolFinished, holdfast.ToolFinished{ToolUseID: "z", Content: "x"})
	c := b.read(t)
	var got []string
	for _, i := range c.Items {
		if u, ok := i.(*conversation.Use); ok {
			got = append(got, fmt.Sprintf("%s %d %d %q %v %s %s", u.ID, u.State, u.Result, u.Text, u.IsError, u.Rewritten, u.Intent.Call))
		}
	}
	want := []string{`a 2 0 "" false {"x":1} `, `b 3 0 "" false  call`, `c 4 1 "done" true  `, `d 4 2 "no" true  `, `e 4 3 "lost" true  `}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestWhatATurnUsedAndWaitsFor: calls with and without an answer, the broker's, waits and
// questions.
func TestWhatATurnUsedAndWaitsFor(t *testing.T) {
	b := &book{}
	b.begin("before")
	b.says("x")
	b.add(holdfast.EventTurnCompleted, holdfast.TurnEnded{})
	b.begin("go")
	began := int64(len(b.events)) - 1
	b.says("one")
	until := start.Add(time.Hour)
	parked := b.add(holdfast.EventNotice, holdfast.Notice{Code: "model.parked", Until: &until})
	b.add(holdfast.EventModelRequest, holdfast.ModelRequest{Status: "rate_limit", Usage: holdfast.Usage{InputTokens: 3}})
	if c := b.read(t); !c.Turn.Parked.Equal(until) {
		t.Errorf("parked until %s", c.Turn.Parked)
	}
	b.add(holdfast.EventModelRequest, holdfast.ModelRequest{Status: holdfast.StatusOK, Brokered: true, Usage: holdfast.Usage{InputTokens: 5}})
	b.add(holdfast.EventModelRequest, holdfast.ModelRequest{Status: holdfast.StatusOK, Usage: holdfast.Usage{InputTokens: 7}})
	asked := b.add(holdfast.EventApprovalAsked, holdfast.Approval{ID: "first"})
	answered := b.add(holdfast.EventApprovalAnswered, holdfast.ApprovalAnswered{ID: "first"})
	b.add(holdfast.EventApprovalAsked, holdfast.Approval{ID: "second"})
	steered := b.add(holdfast.EventMessageUser, holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "and"}}, Steer: true})
	b.says("two")
	c := b.read(t)
	at := func(seq int64) time.Time { return start.Add(time.Duration(seq) * time.Second) }
	want := conversation.Turn{
		ID: b.turn, Live: true, Message: began, Steered: steered, Answers: 2, Told: holdfast.Usage{OutputTokens: 20},
		Failed:   holdfast.Usage{InputTokens: 3},
		Brokered: conversation.Brokered{Any: true, Answers: 1, Usage: holdfast.Usage{InputTokens: 5}},
		Waits:    []conversation.Wait{{From: at(parked), Until: until}, {From: at(asked), Until: at(answered)}},
		Questions: []conversation.Question{
			{Approval: holdfast.Approval{ID: "second", Input: json.RawMessage("null")}, Asked: at(answered + 1)},
		},
	}
	if d := cmp.Diff(want, c.Turn); d != "" {
		t.Error(d)
	}
	if c.Completed != 1 {
		t.Errorf("%d turns completed", c.Completed)
	}
}

func TestUnreadableEntriesAreErrors(t *testing.T) {
	for _, typ := range []holdfast.EventType{
		holdfast.EventMessageUser, holdfast.EventMessageAssistant, holdfast.EventThinking, holdfast.EventToolRequested,
		holdfast.EventToolAllowed, holdfast.EventToolDenied, holdfast.EventToolStarted, holdfast.EventToolFinished,
		holdfast.EventToolUnknown, holdfast.EventTurnFailed, holdfast.EventBoxStopped, holdfast.EventSessionResumed,
		holdfast.EventNotice, holdfast.EventHookRan, holdfast.EventModelRequest, holdfast.EventApprovalAsked,
		holdfast.EventDamaged,
	} {
		b := &book{}
		b.add(typ, []int{})
		if _, err := conversation.Read(b.after(0)); !holdfast.IsKind(err, holdfast.KindInternal) {
			t.Errorf("%s: %v", typ, err)
		}
	}
	b := &book{}
	b.add("from.the.future", []int{})
	b.read(t)
}

// TestChildAgents: what child agents say and do stays out of the conversation; what they use up
// and ask belongs to the turn.
func TestChildAgents(t *testing.T) {
	b := &book{}
	b.begin("go")
	b.add(holdfast.EventThinking, holdfast.Thinking{Text: "hm"})
	alone := &book{events: slices.Clone(b.events), turn: b.turn}
	from := len(b.events)
	b.add(holdfast.EventThinking, holdfast.Thinking{Text: "a child thinks"})
	b.says("a child says", "use")
	b.add(holdfast.EventToolStarted, holdfast.ToolStarted{ToolUseID: "use"})
	b.add(holdfast.EventToolFinished, holdfast.ToolFinished{ToolUseID: "use", Content: "x"})
	b.add(holdfast.EventMessageUser, holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "to the child"}}})
	b.add(holdfast.EventHookRan, holdfast.HookRan{Context: []string{"x"}})
	b.add(holdfast.EventModelRequest, holdfast.ModelRequest{Status: "rate_limit", Usage: holdfast.Usage{InputTokens: 3}})
	b.add(holdfast.EventApprovalAsked, holdfast.Approval{ID: "asked"})
	for i := from; i < len(b.events); i++ {
		b.events[i].Agent = "a1"
	}
	b.says("done")
	c := b.read(t)
	alone.says("done")
	want := alone.read(t)
	for _, i := range want.Items { // the events of the child stand between
		if a, ok := i.(*conversation.Answer); ok {
			a.Seq += int64(len(b.events) - len(alone.events))
		}
	}
	if d := cmp.Diff(want.Items, c.Items); d != "" {
		t.Error(d)
	}
	if c.Turn.Answers != 1 || c.Turn.Told.OutputTokens != 20 || c.Turn.Failed.InputTokens != 3 || len(c.Turn.Questions) != 1 {
		t.Errorf("%+v", c.Turn)
	}
}

func TestAGapIsAnError(t *testing.T) {
	b := &book{}
	b.begin("go")
	b.says("x")
	b.events = slices.Delete(b.events, 1, 2)
	if _, err := conversation.Read(b.after(0)); !holdfast.IsKind(err, holdfast.KindInternal) {
		t.Error(err)
	}
	// A delta has no number and says nothing.
	if err := new(conversation.Conversation).Add(holdfast.Event{Type: holdfast.DeltaText, Data: []byte(`[]`)}); err != nil {
		t.Error(err)
	}
}

// drawn is a log of turns that ended.
func drawn(t *rapid.T) (b *book, ends []int64) {
	b = &book{}
	for n := range rapid.IntRange(1, 5).Draw(t, "turns") {
		b.begin(fmt.Sprint("message ", n))
		for i := range rapid.IntRange(0, 3).Draw(t, "answers") {
			b.says("text", fmt.Sprint("u", i))
			b.add(holdfast.EventToolStarted, holdfast.ToolStarted{ToolUseID: fmt.Sprint("u", i)})
			if rapid.Bool().Draw(t, "finishes") {
				b.add(holdfast.EventToolFinished, holdfast.ToolFinished{ToolUseID: fmt.Sprint("u", i), Content: "out"})
			}
		}
		end := rapid.SampledFrom([]holdfast.EventType{holdfast.EventTurnCompleted, holdfast.EventTurnFailed, holdfast.EventTurnInterrupted}).Draw(t, "end")
		ends = append(ends, b.add(end, holdfast.TurnEnded{Message: "why"}))
		if rapid.Bool().Draw(t, "later") {
			b.add(holdfast.EventBoxStopped, holdfast.BoxEnded{Reason: "idle", Processes: []string{"x"}})
		}
	}
	return b, ends
}

// TestRewindsChooseABranch: after each rewind, also one to a turn that an earlier one left, the
// conversation is what the events of its branch alone give, and it goes on from there.
func TestRewindsChooseABranch(t *testing.T) {
	same := cmpopts.IgnoreUnexported(conversation.Aside{})
	rapid.Check(t, func(t *rapid.T) {
		b, ends := drawn(t)
		for range rapid.IntRange(1, 4).Draw(t, "rewinds") {
			to := rapid.SampledFrom(append(ends, 0)).Draw(t, "to")
			b.add(holdfast.EventSessionRewound, holdfast.Rewound{Seq: to})
			c := b.read(t)
			want := branch(t, b, c.Branch(c.Seq))
			if d := cmp.Diff(want.Items, c.Items, cmpopts.EquateEmpty(), same); d != "" || want.Completed != c.Completed || c.Turn.Live {
				t.Fatalf("%d of %d turns, rewound to %d\n%s", c.Completed, want.Completed, to, d)
			}
			if at := branch(t, b, c.Branch(to)); len(at.Items) != len(c.Items) {
				t.Fatalf("the branch of #%d has %d items, the conversation has %d", to, len(at.Items), len(c.Items))
			}
			if n, ok := c.CompletedAt(to); !ok || n != c.Completed {
				t.Fatalf("%d turns were completed at #%d, not %d", c.Completed, to, n)
			}
			n := len(b.events)
			b.begin("on from here")
			ends = append(ends, b.add(holdfast.EventTurnCompleted, holdfast.TurnEnded{}))
			for _, ev := range b.events[n:] {
				if err := c.Add(ev); err != nil {
					t.Fatal(err)
				}
			}
			if len(c.Items) != len(want.Items)+3 || c.Completed != want.Completed+1 {
				t.Fatalf("%d items after %d", len(c.Items), len(want.Items))
			}
		}
	})
	b := &book{}
	b.begin("go")
	b.add(holdfast.EventSessionRewound, holdfast.Rewound{Seq: 1})
	if _, err := conversation.Read(b.after(0)); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Error(err)
	}
}

// branch folds the events of some spans alone. It keeps their numbers by events that mean nothing.
func branch(t *rapid.T, b *book, spans []conversation.Span) *conversation.Conversation {
	alone := &book{}
	for _, ev := range b.events {
		if !slices.ContainsFunc(spans, func(s conversation.Span) bool { return ev.Seq > s.After && ev.Seq <= s.Upto }) {
			ev = holdfast.Event{Seq: ev.Seq, Type: "nothing", Data: []byte("{}")}
		}
		alone.events = append(alone.events, ev)
	}
	return alone.read(t)
}

// TestKeptConversations are read on from where they stood, and bounded in number and
// bytes.
func TestKeptConversations(t *testing.T) {
	k := conversation.NewKept(2, 5000)
	logs := map[holdfast.SessionID]*book{}
	for _, id := range []holdfast.SessionID{"a", "b", "c"} {
		logs[id] = &book{}
		logs[id].begin("go")
	}
	var from int64
	read := func(id holdfast.SessionID) (c conversation.Conversation) {
		t.Helper()
		err := k.Read(id, func(after int64) iter.Seq2[holdfast.Event, error] { from = after; return logs[id].after(after) }, func(now *conversation.Conversation) error {
			c = *now
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	read("a")
	logs["a"].says("more")
	if c := read("a"); from != 2 || c.Seq != 3 {
		t.Errorf("read from %d to %d", from, c.Seq)
	}
	read("b")
	read("c")
	if read("c"); from != 2 {
		t.Errorf("c was read again from %d", from)
	}
	if n, _ := k.Size(); n != 2 {
		t.Errorf("%d are kept", n)
	}
	logs["a"].says(string(make([]byte, 6000)))
	read("a")
	if read("a"); from != 4 {
		t.Error("the one that was read last is not kept")
	}
	if n, bytes := k.Size(); n != 1 || bytes < 6000 {
		t.Errorf("%d are kept, of %d bytes", n, bytes)
	}
	k.Forget("c")
	if read("c"); from != 0 {
		t.Error("it was not forgotten")
	}
}

// TestSessionsInTurn: of more sessions than fit, which work in turn, most still find their
// conversation.
func TestSessionsInTurn(t *testing.T) {
	const sessions, fit, rounds = 30, 24, 50
	k := conversation.NewKept(fit, 1<<20)
	log := &book{}
	log.begin("go")
	found := 0
	for round := range rounds {
		for i := range sessions {
			err := k.Read(holdfast.SessionID(fmt.Sprint(i)), func(after int64) iter.Seq2[holdfast.Event, error] {
				if after > 0 && round > 0 {
					found++
				}
				return log.after(after)
			}, func(*conversation.Conversation) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if found < sessions*rounds/2 {
		t.Errorf("%d of %d found theirs", found, sessions*(rounds-1))
	}
}

// TestALogThatBreaksOff: what was read stands, and the next read goes on there.
func TestALogThatBreaksOff(t *testing.T) {
	k := conversation.NewKept(1, 1<<20)
	b := &book{}
	b.begin("go")
	broken := errors.New("broken")
	err := k.Read("a", func(int64) iter.Seq2[holdfast.Event, error] {
		return func(yield func(holdfast.Event, error) bool) {
			if yield(b.events[0], nil) {
				yield(holdfast.Event{}, broken)
			}
		}
	}, nil)
	if !errors.Is(err, broken) {
		t.Error(err)
	}
	err = k.Read("a", func(after int64) iter.Seq2[holdfast.Event, error] {
		if after != 1 {
			t.Errorf("read on from %d", after)
		}
		return b.after(after)
	}, func(c *conversation.Conversation) error {
		if c.Seq != 2 {
			t.Errorf("at %d", c.Seq)
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestEndText(t *testing.T) {
	for want, end := range map[string]struct {
		typ     holdfast.EventType
		message string
	}{
		"the turn failed":                 {holdfast.EventTurnFailed, ""},
		"the turn failed: no key":         {holdfast.EventTurnFailed, "no key"},
		"the turn was interrupted":        {holdfast.EventTurnInterrupted, "interrupted"},
		"the turn was interrupted: ended": {holdfast.EventTurnInterrupted, "ended"},
	} {
		if got := conversation.EndText(end.typ, end.message); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
