package resident

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestHZ12_WhatAProcessNeverGotIsSentAgain: whatever boxd took of what a server sent, the
// next server gets back exactly the lines that it did not take, in order.
func TestHZ12_WhatAProcessNeverGotIsSentAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o Outbox
		taken, began := int64(0), rapid.Int64Range(0, 1000).Draw(t, "before")
		o.Attach()
		o.Begun(began)
		var want []string
		n := rapid.IntRange(0, mostKept).Draw(t, "lines")
		took := rapid.IntRange(0, n).Draw(t, "taken")
		for i := range n {
			line := fmt.Sprintf(`{"n":%d,"pad":"%s"}`, i, strings.Repeat("x", rapid.IntRange(0, 50).Draw(t, "pad")))
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				o.Pass([]byte(line))
			case 1:
				o.Add([]byte(line), fmt.Sprint("ref", i))
				if i >= took {
					want = append(want, fmt.Sprint("ref", i))
				}
			default:
				o.Add([]byte(line), "")
				if i >= took {
					want = append(want, line)
				}
			}
			if i < took {
				taken += int64(len(line)) + 1
			}
		}
		if sent := strings.Join(asStrings(o.Take()), ""); strings.Count(sent, "\n") != n || o.Queued() {
			t.Fatalf("%d lines are sent as %q", n, sent)
		}
		raw := Marshal(o.Sent)
		var next Outbox
		if err := json.Unmarshal(raw, &next.Sent); err != nil {
			t.Fatal(err)
		}
		next.Attach()
		next.Add([]byte("ahead"), "ahead")
		var got []string
		for _, s := range next.Begun(began + taken) {
			got = append(got, string(s.Line)+s.Ref)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("sent again %q, want %q", got, want)
		}
		if s := next.Sent; len(s) != 1 || s[0].End != began+taken+int64(len("ahead\n")) {
			t.Fatalf("what was sent ahead is kept as %+v", s)
		}
	})
}

// TestWhatWasSentAheadIsForgotten when the attachment never began: nobody knows where it
// would lie.
func TestWhatWasSentAheadIsForgotten(t *testing.T) {
	o := Outbox{Sent: []Sent{{End: 1000, Ref: "old"}}}
	o.Attach()
	o.Add([]byte("ahead"), "ahead")
	o.Attach()
	if lost := o.Begun(3); len(lost) != 1 || lost[0].Ref != "old" || len(o.Sent) != 0 || o.Queued() {
		t.Errorf("lost %+v, kept %+v", lost, o.Sent)
	}
	o.Add([]byte("again"), "again")
	o.Attach()
	if lost := o.Begun(3); len(lost) != 1 || lost[0].End != 9 {
		t.Errorf("lost %+v", lost)
	}
}

func asStrings(lines [][]byte) (out []string) {
	for _, l := range lines {
		out = append(out, string(l))
	}
	return out
}

// TestI19_AnOutboxIsBounded: an agent that asks on and on does not fill the state.
func TestI19_AnOutboxIsBounded(t *testing.T) {
	var o Outbox
	o.Add([]byte("the prompt"), "prompt")
	for range 100 {
		o.Add([]byte("{}"), "")
		o.Add([]byte(`"`+strings.Repeat("x", 2000)+`"`), "")
	}
	if raw := Marshal(o.Sent); len(raw) > mostKeptBytes+4096 || len(o.Sent) > mostKept+1 || o.Sent[0].Ref != "prompt" {
		t.Errorf("%d lines of %d bytes are kept", len(o.Sent), len(raw))
	}
}

// TestDecisionsKeepTheOrderOfAKey, and work of other keys does not wait.
func TestDecisionsKeepTheOrderOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDecisions()
		var got []string
		gate := make(chan struct{})
		for _, name := range []string{"a1", "a2", "b1"} {
			d.Go(name[:1], func() (Then, error) {
				if name == "a1" {
					<-gate
				}
				return func(context.Context) error {
					got = append(got, name)
					return nil
				}, nil
			})
		}
		d.After(time.Hour, func(context.Context) error {
			got = append(got, "late")
			return nil
		})
		run := func() {
			if err := (<-d.Done())(t.Context()); err != nil {
				t.Error(err)
			}
		}
		run()
		close(gate)
		run()
		run()
		run()
		if !slices.Equal(got, []string{"b1", "a1", "a2", "late"}) {
			t.Errorf("came as %q", got)
		}
		failed := errors.New("no")
		d.Go("c", func() (Then, error) {
			if err := d.Call(t.Context(), func(context.Context) error { return failed }); !errors.Is(err, failed) {
				t.Errorf("a call gave %v", err)
			}
			return nil, nil
		})
		if err := (<-d.Apart())(t.Context()); err != nil {
			t.Error(err)
		}
		<-d.Done()
		d.Go("e", func() (Then, error) { return nil, failed })
		<-d.Apart() // failed work needs no agent
		d.Go("d", func() (Then, error) { return nil, nil })
		d.After(time.Hour, nil)
		d.Stop() // it does not wait for a reader, nor for an hour
		if err := d.Call(t.Context(), nil); !errors.Is(err, errStopped) {
			t.Errorf("a call after the end gave %v", err)
		}
	})
}

// recorded keeps events in short.
type recorded []string

func (r *recorded) add(typ holdfast.EventType, data any) {
	var d struct {
		ID      string `json:"tool_use_id"`
		Outcome string `json:"outcome"`
	}
	_ = json.Unmarshal(Marshal(data), &d)
	*r = append(*r, strings.TrimSpace(string(typ)+" "+d.ID+" "+d.Outcome))
}

// TestI13_EveryUseHasOneAnswer: whatever happened to a use before the end of its turn, it
// has one answer after it, also if the events are read back from the log.
func TestI13_EveryUseHasOneAnswer(t *testing.T) {
	now := func() time.Time { return time.Unix(1, 0) }
	steps := map[string]func(*Ledger, *Use){
		"requested": func(*Ledger, *Use) {},
		"denied":    func(l *Ledger, u *Use) { l.Deny(u, policy.Decision{Reason: "no"}) },
		"started": func(l *Ledger, u *Use) {
			l.Allow(u, policy.Decision{Verdict: policy.Allowed, Input: json.RawMessage(`{"b":2}`)}, "c", "box", "boot")
		},
		"finished": func(l *Ledger, u *Use) {
			l.Allow(u, policy.Decision{Verdict: policy.Allowed}, "c", "box", "boot")
			l.Finish(u, holdfast.ToolFinished{Outcome: holdfast.ExitOK})
		},
	}
	for name, want := range map[string]string{
		"requested": "tool.finished agent/u canceled", "denied": "tool.denied agent/u", "started": "tool.unknown agent/u", "finished": "tool.finished agent/u ok",
	} {
		var log recorded
		var events []holdfast.Event
		l := NewLedger(now, func(typ holdfast.EventType, data any) {
			log.add(typ, data)
			events = append(events, holdfast.Event{Type: typ, Data: Marshal(data), Time: now()})
		})
		u := l.Request(UseID("agent", "u"), "Bash", json.RawMessage(`{"a":1}`))
		steps[name](l, u)
		before := len(events)
		read := NewLedger(now, func(typ holdfast.EventType, _ any) { t.Errorf("%s: reading records %s", name, typ) })
		for _, ev := range events {
			if err := read.Fold(ev); err != nil {
				t.Fatal(err)
			}
		}
		if got := read.Get("agent/u"); got.State != u.State || got.Agent != "agent" || string(got.Runs()) != string(u.Runs()) || got.Call != u.Call || got.Reason != u.Reason || read.Began() != l.Began() || read.Open() != l.Open() {
			t.Errorf("%s: read back as %+v, it was %+v", name, got, u)
		}
		l.End("over", false)
		l.End("over", false)
		if last := log[len(log)-1]; last != want || len(events)-before > 1 || l.Open() {
			t.Errorf("%s: %q", name, log)
		}
	}
}

// TestAnOpenUseIsNotAskedForTwice: an agent that asks for an id again while that use runs
// gets no second use; after its end the id is free.
func TestAnOpenUseIsNotAskedForTwice(t *testing.T) {
	var log recorded
	l := NewLedger(time.Now, log.add)
	u := l.Request("u", "Bash", nil)
	l.Start(u, "c", "box", "boot")
	if l.Know(holdfast.ToolRequested{ToolUseID: "u", Name: "Bash"}) != u || u.State != Started {
		t.Error("the use that runs was replaced")
	}
	l.End("stopped", true)
	if again := l.Request("u", "Bash", nil); again == u || len(l.All()) != 1 || !slices.Contains(log, "tool.finished u canceled") {
		t.Errorf("%+v, %q", l.All(), log)
	}
}

// TestAccount: what was said in a turn is counted once, and parts of an answer are one step.
func TestAccount(t *testing.T) {
	var a Account
	for i, data := range []any{
		holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "one"}}},
		holdfast.AssistantMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "a"}, {Type: holdfast.PartThinking}, {Type: holdfast.PartText, Text: "b"}}, StopReason: "end_turn", Usage: holdfast.Usage{InputTokens: 2}},
		holdfast.Notice{Code: holdfast.NoticeFilesAtRisk, Text: "files"},
		holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "two"}}},
	} {
		typ := map[int]holdfast.EventType{0: holdfast.EventMessageUser, 1: holdfast.EventMessageAssistant, 2: holdfast.EventNotice, 3: holdfast.EventMessageUser}[i]
		if err := a.Fold(holdfast.Event{Seq: int64(i + 1), Type: typ, Data: Marshal(data)}, false); err != nil {
			t.Fatal(err)
		}
	}
	a.Spoke(holdfast.AssistantMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "c"}}, Usage: holdfast.Usage{InputTokens: 3}}, true)
	joined := []holdfast.Event{{Seq: 4, Type: holdfast.EventMessageUser, Data: Marshal(holdfast.UserMessage{})}, {Seq: 5, Type: holdfast.EventMessageUser, Data: Marshal(holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "three"}}})}}
	if err := a.Join(joined); err != nil {
		t.Fatal(err)
	}
	left := a.Without(func(seq int64) bool { return seq < 4 })
	if a.Steps != 1 || a.Text != "c" || a.Used.InputTokens != 5 || a.Last() != 5 || len(left) != 2 || left[1].Text != "three" || len(a.Warnings) != 1 {
		t.Errorf("%+v", a)
	}
}

// keeper is a log that refuses when it is told to.
type keeper struct {
	states []holdfast.AgentState
	events []holdfast.Event
	fail   error
}

func (k *keeper) Keep(_ context.Context, states []holdfast.AgentState, drafts ...journal.Draft) ([]holdfast.Event, error) {
	if k.fail != nil {
		return nil, k.fail
	}
	from := len(k.events)
	k.states = states
	for _, d := range drafts {
		k.events = append(k.events, holdfast.Event{Seq: int64(len(k.events) + 1), Type: d.Type, Turn: d.Turn, Data: Marshal(d.Data), Time: time.Unix(0, 0)})
	}
	return k.events[from:], nil
}

// TestRecorder: events and states are committed together, and after a refused commit
// nothing more is.
func TestRecorder(t *testing.T) {
	k := new(keeper)
	r := NewRecorder(k, "t")
	r.Notice("a", "x")
	r.Other(holdfast.AgentState{Generation: 1, Health: holdfast.HealthLeft})
	if err := r.Commit(t.Context(), holdfast.AgentState{Generation: 2}); err != nil {
		t.Fatal(err)
	}
	if len(k.states) != 2 || len(k.events) != 1 || k.events[0].Turn != "t" || r.Seq != 1 || r.Pending() || r.State.Generation != 2 {
		t.Errorf("%+v %+v", k, r)
	}
	for i := range 3 * mostOdd {
		r.Odd("agent.unknown", "", fmt.Sprint(i/2))
	}
	if due := r.Due(); len(due) != mostOdd || !strings.HasSuffix(due[mostOdd-1].Data.(holdfast.Notice).Text, "left out") {
		t.Errorf("%d notices", len(due))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Commit(ctx, r.State); err != nil || r.Pending() {
		t.Errorf("a commit for a cancelled turn: %v", err)
	}
	k.fail = errors.New("full")
	r.Touch()
	if err := r.Commit(t.Context(), r.State); !errors.Is(err, k.fail) {
		t.Error(err)
	}
	refused := k.fail
	k.fail = nil
	if err := r.Commit(t.Context(), r.State); !errors.Is(err, refused) {
		t.Errorf("something was committed after a refused commit: %v", err)
	}
}

// TestI19_NothingIsReadBehindALargeLine until it is handled.
func TestI19_NothingIsReadBehindALargeLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &Link{lines: make(chan Line, ahead)}
		ctx, cancel := context.WithCancel(t.Context())
		heard := 0
		go func() {
			for k.hear(ctx, make([]byte, large+1), 0) == nil {
				heard++
			}
		}()
		synctest.Wait()
		if heard != 0 || len(k.lines) != 1 {
			t.Errorf("%d large lines are read ahead", len(k.lines))
		}
		k.Handled(<-k.lines)
		synctest.Wait()
		if heard != 1 || len(k.lines) != 1 {
			t.Errorf("%d handled, %d read ahead", heard, len(k.lines))
		}
		cancel()
	})
}

// TestAProcessThatEndedWasThere: what it said before its end is read, whatever comes first
// to notice, its beginning or its end.
func TestAProcessThatEndedWasThere(t *testing.T) {
	for range 100 {
		k := &Link{started: make(chan wire.Started, 1), done: make(chan struct{})}
		k.started <- wire.Started{StdinTaken: 7}
		close(k.done)
		if taken, ok, err := k.Begun(t.Context()); taken != 7 || !ok || err != nil {
			t.Fatalf("taken %d, there %v: %v", taken, ok, err)
		}
	}
	k := &Link{started: make(chan wire.Started, 1), done: make(chan struct{})}
	close(k.done)
	if _, ok, err := k.Begun(t.Context()); ok || err != nil {
		t.Error("a process that never began was there")
	}
}
