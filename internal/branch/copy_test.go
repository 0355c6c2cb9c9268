package branch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/branch"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// logger writes random logs as the server would.
type logger struct {
	t    *testing.T
	r    *rand.Rand
	log  []holdfast.Event
	ends []int64
	// number is the number of the newest turn.
	number int64
	uses   int
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func (l *logger) add(typ holdfast.EventType, turn holdfast.TurnID, agent holdfast.ChildID, data any) int64 {
	l.t.Helper()
	raw, err := json.Marshal(data)
	if err != nil {
		l.t.Fatal(err)
	}
	seq := int64(len(l.log) + 1)
	l.log = append(l.log, holdfast.Event{
		Session: "s", Seq: seq, Type: typ, Turn: turn, Agent: agent, Data: raw, Time: noon.Add(time.Duration(seq) * time.Minute),
	})
	return seq
}

func (l *logger) text(s string) []holdfast.Part {
	return []holdfast.Part{{Type: holdfast.PartText, Text: s}}
}

// beside adds, in four of six calls, an event that is not part of the conversation with the agent.
func (l *logger) beside(turn holdfast.TurnID) {
	switch l.r.IntN(6) {
	case 0:
		l.add("something.unknown", turn, "", map[string]int{"x": 1})
	case 1:
		l.add(holdfast.EventSnapshotTaken, "", "", holdfast.SnapshotTaken{})
	case 2:
		l.add(holdfast.EventMessageAssistant, turn, "a1", holdfast.AssistantMessage{Parts: l.text("of a child")})
		l.add(holdfast.EventToolRequested, turn, "a1", holdfast.ToolRequested{ToolUseID: "c", Name: "Bash", Input: json.RawMessage(`{}`)})
	case 3:
		l.add(holdfast.EventNotice, turn, "", holdfast.Notice{Code: "x", Level: "info", Text: "x"})
	}
}

// turn adds a turn, which may be queued and never start.
func (l *logger) turn() {
	l.number++
	id := holdfast.TurnID(fmt.Sprintf("t%d", l.number))
	said := l.add(holdfast.EventMessageUser, id, "", holdfast.UserMessage{Parts: l.text("do " + string(id))})
	if l.r.IntN(5) == 0 {
		l.add(holdfast.EventTurnInterrupted, id, "", holdfast.TurnEnded{Number: l.number, MessageSeq: said, Message: "the queue was emptied"})
		return
	}
	l.beside(id)
	l.add(holdfast.EventTurnStarted, id, "", holdfast.TurnStartedData{Number: l.number, MessageSeq: said})
	seen := said
	for range l.r.IntN(3) {
		l.beside(id)
		if l.r.IntN(3) == 0 {
			seen = l.add(holdfast.EventMessageUser, id, "", holdfast.UserMessage{Parts: l.text("and this"), Steer: true})
		}
		if l.r.IntN(3) == 0 {
			l.add(holdfast.EventHookRan, id, "", holdfast.HookRan{MessageSeq: said, Decision: "deny"})
		}
		seen = l.answer(id, seen)
	}
	typ := []holdfast.EventType{holdfast.EventTurnCompleted, holdfast.EventTurnFailed, holdfast.EventTurnInterrupted}[l.r.IntN(3)]
	l.ends = append(l.ends, l.add(typ, id, "", holdfast.TurnEnded{Number: l.number, MessageSeq: said, Steps: 3, Message: "so"}))
	l.beside("")
}

// answer adds an answer with thinking and a tool use, and returns the newest event that the next one has seen.
func (l *logger) answer(id holdfast.TurnID, seen int64) int64 {
	l.uses++
	use := fmt.Sprintf("u%d", l.uses)
	l.add(holdfast.EventThinking, id, "", holdfast.Thinking{Text: "hm"})
	said := l.add(holdfast.EventMessageAssistant, id, "", holdfast.AssistantMessage{
		Seen: seen, Model: "m", Parts: append(l.text("yes"), holdfast.Part{Type: holdfast.PartToolUse, ToolUseID: use}),
	})
	l.add(holdfast.EventToolRequested, id, "", holdfast.ToolRequested{ToolUseID: use, Name: "Bash", Input: json.RawMessage(`{"command":"ls"}`)})
	if l.r.IntN(4) == 0 {
		return l.add(holdfast.EventToolDenied, id, "", holdfast.ToolDecision{ToolUseID: use})
	}
	l.add(holdfast.EventToolAllowed, id, "", holdfast.ToolDecision{ToolUseID: use})
	l.add(holdfast.EventToolStarted, id, "", holdfast.ToolStarted{ToolUseID: use, Call: "c"})
	switch l.r.IntN(4) {
	case 0:
		return said // cut off
	case 1:
		return l.add(holdfast.EventToolUnknown, id, "", holdfast.ToolUnknown{ToolUseID: use, Reason: "who knows"})
	}
	return l.add(holdfast.EventToolFinished, id, "", holdfast.ToolFinished{ToolUseID: use, Content: "a file"})
}

func each(log []holdfast.Event) iter.Seq2[holdfast.Event, error] {
	return func(yield func(holdfast.Event, error) bool) {
		for _, ev := range log {
			if !yield(ev, nil) {
				return
			}
		}
	}
}

// ids returns a source of ids for new turns.
func ids() func() (string, error) {
	n := 0
	return func() (string, error) {
		n++
		return fmt.Sprintf("new%d", n), nil
	}
}

// TestCopyIsTheSameConversation: the copies of a branch, read as a conversation, are that of the branch, with other
// ids and numbers (HZ-13).
//
// ASH-11.
func TestCopyIsTheSameConversation(t *testing.T) {
	for seed := range uint64(400) {
		l := &logger{t: t, r: rand.New(rand.NewPCG(seed, 7))}
		l.add(holdfast.EventSessionCreated, "", "", nil)
		for range 1 + l.r.IntN(8) {
			if l.turn(); len(l.ends) > 0 && l.r.IntN(3) == 0 {
				to := l.ends[l.r.IntN(len(l.ends))] * int64(min(1, l.r.IntN(6)))
				l.add(holdfast.EventSessionRewound, "", "", holdfast.Rewound{Seq: to})
			}
		}
		whole, err := conversation.Read(each(l.log))
		if err != nil {
			t.Fatal(err)
		}
		for _, end := range append(l.ends, 0) {
			var spans []journal.Span
			for _, s := range whole.Branch(end) {
				spans = append(spans, journal.Span(s))
			}
			if compareCopy(t, l, spans, end); t.Failed() {
				t.Fatalf("seed %d, end #%d", seed, end)
			}
		}
	}
}

// compareCopy copies the branch that ends at an event, and compares the two conversations.
func compareCopy(t *testing.T, l *logger, spans []journal.Span, end int64) {
	t.Helper()
	const after = 3
	out, err := branch.Copy(each(l.log), spans, after, ids())
	if err != nil {
		t.Fatal(err)
	}
	// The log of the branch alone: its events at their places, and nothing of importance elsewhere.
	var alone []holdfast.Event
	for _, ev := range l.log[:end] {
		if !slices.ContainsFunc(spans, func(s journal.Span) bool { return ev.Seq > s.After && ev.Seq <= s.Upto }) || ev.Type == holdfast.EventSessionRewound {
			ev = holdfast.Event{Session: "s", Seq: ev.Seq, Type: holdfast.EventUsage, Data: json.RawMessage(`{}`)}
		}
		alone = append(alone, ev)
	}
	var copied []holdfast.Event
	for n := range after {
		copied = append(copied, holdfast.Event{Session: "f", Seq: int64(n + 1), Type: holdfast.EventUsage, Data: json.RawMessage(`{}`)})
	}
	for n, d := range out.Events {
		raw, err := json.Marshal(d.Data)
		if err != nil || d.Copied.IsZero() || d.Agent != "" {
			t.Errorf("copy %+v, %v", d, err)
		}
		copied = append(copied, holdfast.Event{Session: "f", Seq: int64(after + n + 1), Type: d.Type, Turn: d.Turn, Data: raw, Time: d.Copied})
	}
	want, got := shape(t, alone), shape(t, copied)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the copy is\n%s\nwant\n%s", got, want)
	}
	checkTurns(t, out, copied)
}

// shape reads a log as a conversation and describes it with numbers of events and turns in the order of their first
// appearance.
func shape(t *testing.T, log []holdfast.Event) (out []string) {
	t.Helper()
	c, err := conversation.Read(each(log))
	if err != nil {
		t.Fatal(err)
	}
	turns, times, places := map[holdfast.TurnID]int{"": 0}, map[int64]time.Time{}, map[int64]int{}
	for _, ev := range log {
		times[ev.Seq] = ev.Time
	}
	for n, it := range c.Items {
		seq, turn := it.At()
		places[seq] = n + 1
		if _, ok := turns[turn]; !ok {
			turns[turn] = len(turns)
		}
		line := fmt.Sprintf("%T turn %d at %s", it, turns[turn], times[seq].Format("15:04"))
		switch it := it.(type) {
		case *conversation.Message:
			line += fmt.Sprintf(" %q %v", it.Text, it.Steer)
		case *conversation.Answer:
			line += fmt.Sprintf(" %q %v seen %s continues %v", it.Text(), it.Thinking, times[it.Seen].Format("15:04"), it.Continues)
		case *conversation.Use:
			line += fmt.Sprintf(" %s %s %s state %d result %d %q", it.ID, it.Name, it.Input, it.State, it.Result, it.Text)
		case *conversation.Ended:
			line += fmt.Sprintf(" %s %q %d", it.How, it.Message, it.Completed)
		case *conversation.Aside:
			line += fmt.Sprintf(" hook %v", it.Hook != nil)
			if it.Hook != nil {
				line += " about " + times[it.Hook.MessageSeq].Format("15:04")
			}
		}
		out = append(out, line)
	}
	return append(out, fmt.Sprint(c.Completed))
}

// checkTurns compares the turns of a copy with its events.
func checkTurns(t *testing.T, out branch.Copied, log []holdfast.Event) {
	t.Helper()
	var rows, last int64
	numbers, ended := map[holdfast.TurnID]int64{}, 0
	for _, c := range out.Turns {
		if c.From == "" {
			rows++
			numbers[c.ID] = c.Number
			if c.Number != rows || c.MessageSeq == 0 || log[c.MessageSeq-1].Type != holdfast.EventMessageUser || log[c.MessageSeq-1].Turn != c.ID {
				t.Errorf("turn %+v is row %d", c, rows)
			}
			if c.To == holdfast.TurnRunning {
				last = c.Number
			}
			continue
		}
		ended++
		var end holdfast.TurnEnded
		ev := log[c.EndSeq-1]
		if err := ev.Decode(&end); err != nil || ev.Turn != c.ID || ev.Type != holdfast.EventType("turn."+string(c.To)) || end.Number != numbers[c.ID] || end.MessageSeq == 0 {
			t.Errorf("turn %+v ends with %+v, %v", c, ev, err)
		}
	}
	if out.Number != last || numbers[out.Turn] != last || ended != int(rows) || (out.Turn == "") != (last == 0) {
		t.Errorf("last turn %q number %d, %d turns, %d of them ended", out.Turn, out.Number, rows, ended)
	}
}

// TestCopyFails: what cannot be read is not left out.
func TestCopyFails(t *testing.T) {
	l := &logger{t: t, r: rand.New(rand.NewPCG(1, 1))}
	for len(l.ends) == 0 {
		l.turn()
	}
	spans := []journal.Span{{After: 0, Upto: l.ends[0]}}
	bad := errors.New("bad")
	if _, err := branch.Copy(func(yield func(holdfast.Event, error) bool) { yield(holdfast.Event{}, bad) }, spans, 0, ids()); !errors.Is(err, bad) {
		t.Errorf("a log that fails: %v", err)
	}
	if _, err := branch.Copy(each(l.log), spans, 0, func() (string, error) { return "", bad }); !errors.Is(err, bad) {
		t.Errorf("an id that fails: %v", err)
	}
	damaged := slices.Clone(l.log)
	damaged[0].Type = holdfast.EventDamaged
	if _, err := branch.Copy(each(damaged), spans, 0, ids()); err == nil {
		t.Error("a damaged event was left out")
	}
	broken := slices.Clone(l.log)
	broken[l.ends[0]-1].Data = json.RawMessage(`7`)
	if _, err := branch.Copy(each(broken), spans, 0, ids()); err == nil {
		t.Error("an end that does not decode was copied")
	}
}
