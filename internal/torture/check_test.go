package torture

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

const (
	turnA = holdfast.TurnID("01890a5d-ac96-774b-bcce-b302099a8057")
	turnB = holdfast.TurnID("01890a5d-ac96-774b-bcce-b302099a8058")
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// story is a log of two turns: one tool that ended well, one whose box was
// killed under it.
func story(t *testing.T) evidence {
	t.Helper()
	ev := evidence{
		id: "s", acked: map[holdfast.TurnID]bool{turnA: true, turnB: true},
		seen:     map[holdfast.TurnID]int64{turnA: 7, turnB: 12},
		lines:    map[string]int{"L-0-0-0": 1},
		boxKills: []kill{{from: noon.Add(9500 * time.Millisecond), to: noon.Add(9600 * time.Millisecond), boot: "b1"}},
	}
	add := func(turn holdfast.TurnID, typ holdfast.EventType, data any) {
		b, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		n := len(ev.events) + 1
		ev.events = append(ev.events, holdfast.Event{Seq: int64(n), Type: typ, Turn: turn, Data: b, Time: noon.Add(time.Duration(n) * time.Second)})
	}
	ask := func(line string) holdfast.ToolRequested {
		in := fmt.Sprintf(`{"command":"echo at work; sleep 0.01; echo %s >> lines"}`, line)
		return holdfast.ToolRequested{ToolUseID: "u1", Name: "Bash", Input: json.RawMessage(in)}
	}
	add("", holdfast.EventSessionCreated, holdfast.SessionCreated{})
	add(turnA, holdfast.EventTurnStarted, holdfast.TurnStartedData{})
	add(turnA, holdfast.EventToolRequested, ask("L-0-0-0"))
	add(turnA, holdfast.EventToolStarted, holdfast.ToolStarted{ToolUseID: "u1"})
	add(turnA, holdfast.EventToolFinished, holdfast.ToolFinished{ToolUseID: "u1", Outcome: holdfast.ExitOK})
	add(turnA, holdfast.EventMessageAssistant, holdfast.AssistantMessage{})
	add(turnA, holdfast.EventTurnCompleted, holdfast.TurnEnded{})
	add(turnB, holdfast.EventTurnStarted, holdfast.TurnStartedData{})
	add(turnB, holdfast.EventToolStarted, holdfast.ToolStarted{ToolUseID: "u1", Boot: "b1"})
	add(turnB, holdfast.EventToolRequested, ask("L-0-1-0"))
	add(turnB, holdfast.EventToolUnknown, holdfast.ToolUnknown{ToolUseID: "u1"})
	add(turnB, holdfast.EventTurnCompleted, holdfast.TurnEnded{})
	return ev
}

func TestCheckAcceptsWhatIsRight(t *testing.T) {
	if bad := check(story(t)); len(bad) != 0 {
		t.Error(bad)
	}
	ev := story(t)
	ev.lines["L-0-1-0"] = 1 // an unknown outcome may have happened
	if bad := check(ev); len(bad) != 0 {
		t.Error(bad)
	}
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	for says, spoil := range map[string]func(*evidence){
		"is not in the log":              func(e *evidence) { e.acked["other"] = true },
		"2 terminal events":              func(e *evidence) { e.events[11].Turn = turnA },
		"0 terminal events":              func(e *evidence) { e.events = e.events[:11] },
		"has number":                     func(e *evidence) { e.events[4].Seq = 9 },
		"received its end":               func(e *evidence) { e.seen[turnA] = 6 },
		"occurs 2 times":                 func(e *evidence) { e.lines["L-0-0-0"] = 2 },
		"finished ok, but its line":      func(e *evidence) { delete(e.lines, "L-0-0-0") },
		"no tool use should write it":    func(e *evidence) { e.lines["L-9-9-9"] = 1 },
		"0 outcomes":                     func(e *evidence) { e.events[4].Type = holdfast.EventNotice },
		"has no intent":                  func(e *evidence) { e.events[3].Type = holdfast.EventNotice },
		"its box was not killed":         func(e *evidence) { e.boxKills = nil },
		"but its box was not killed":     func(e *evidence) { e.boxKills[0].boot = "b2" },
		"its box was not killed between": func(e *evidence) { e.boxKills[0].from = noon.Add(time.Minute) },
	} {
		ev := story(t)
		ev.events = slices.Clone(ev.events)
		ev.acked, ev.lines = maps.Clone(ev.acked), maps.Clone(ev.lines)
		spoil(&ev)
		if bad := check(ev); !strings.Contains(strings.Join(bad, "\n"), says) {
			t.Errorf("want a complaint that %q, got %q", says, bad)
		}
	}
}

func TestPointsStopAndPass(t *testing.T) {
	dir := t.TempDir()
	p, err := listenPoints(dir + "/p")
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	report := Report(dir + "/p")
	report("s1", "intent") // nobody armed it: returns at once
	ch := p.arm("running")
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		report("s1", "intent")
		report("s2", "running")
	}()
	h := <-ch
	if h.session != "s2" || h.point != "running" {
		t.Errorf("hit = %+v", h)
	}
	select {
	case <-gone:
		t.Error("the session did not stop at its point")
	default:
	}
	h.pass()
	<-gone
	p.arm("spawned")
	p.disarm()
	report("s3", "spawned")
	Report(dir+"/nobody")("s4", "intent") // no harness: returns at once
}

func TestShortfalls(t *testing.T) {
	r := Result{ServerKills: 100, BoxKills: 50, InTurn: 105, Points: map[string]int{}}
	for _, p := range Points {
		r.Points[p] = 5
	}
	if got := r.shortfalls(); len(got) != 0 {
		t.Error(got)
	}
	r.ServerKills, r.BoxKills, r.InTurn, r.Points["running"] = 99, 49, 99, 4
	if got := r.shortfalls(); len(got) != 4 {
		t.Errorf("%d shortfalls, want 4: %q", len(got), got)
	}
}
