package faultloop

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
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

// story is a log of two turns and a power cut: of the first turn one file is synced and
// one was lost and named; the second turn's file exists.
func story(t *testing.T) evidence {
	t.Helper()
	ev := evidence{
		id: "s", sent: []message{{turnA, "a"}, {turnB, "b"}}, ended: map[holdfast.TurnID]int64{turnA: 8, turnB: 13},
		direct: []effect{{name: "put-0-1", synced: true, at: noon}, {name: "exec-0-2", at: noon.Add(8 * time.Second)}},
		lines:  map[string]int{"turn-0-0-1": 1, "turn-0-3-0": 1, "put-0-1": 1},
	}
	add := func(turn holdfast.TurnID, typ holdfast.EventType, data any) {
		b, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		n := len(ev.events) + 1
		ev.events = append(ev.events, holdfast.Event{Seq: int64(n), Type: typ, Turn: turn, Data: b, Time: noon.Add(time.Duration(n) * time.Second)})
	}
	tool := func(turn holdfast.TurnID, use, name, file string) {
		add(turn, holdfast.EventToolRequested, holdfast.ToolRequested{ToolUseID: use, Name: name, Input: json.RawMessage(fmt.Sprintf("%q", file))})
		add(turn, holdfast.EventToolFinished, holdfast.ToolFinished{ToolUseID: use, Outcome: holdfast.ExitOK})
	}
	add("", holdfast.EventSessionCreated, holdfast.SessionCreated{})
	add(turnA, holdfast.EventMessageUser, holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "a"}}})
	add(turnA, holdfast.EventTurnStarted, holdfast.TurnStartedData{})
	tool(turnA, "u0", "Bash", "turn-0-0-0")
	tool(turnA, "u1", "Write", "turn-0-0-1")
	add(turnA, holdfast.EventTurnCompleted, holdfast.TurnEnded{})
	add("", holdfast.EventNotice, holdfast.Notice{AtRisk: &holdfast.FilesAtRisk{Turns: []holdfast.TurnAtRisk{{ID: turnA, Number: 1}}, Direct: true}})
	add(turnB, holdfast.EventMessageUser, holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "b"}}})
	tool(turnB, "u0", "Bash", "turn-0-3-0")
	add(turnB, holdfast.EventTurnCompleted, holdfast.TurnEnded{})
	return ev
}

func TestCheckAcceptsWhatWasTold(t *testing.T) {
	v := check(story(t))
	if len(v.violations) != 0 || v.messages != 2 || v.effects != 5 || v.lost != 2 || v.untold != 0 {
		t.Errorf("%+v", v)
	}
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	for says, spoil := range map[string]func(*evidence){
		"has number":                              func(e *evidence) { e.events[4].Seq = 9 },
		"has \"b\" as its text":                   func(e *evidence) { e.sent[1].text = "c" },
		"has 0 terminal events":                   func(e *evidence) { e.events = e.events[:12] },
		"as event 6, but":                         func(e *evidence) { e.ended[turnA] = 6 },
		"turn-0-3-0 happened 2 times":             func(e *evidence) { e.lines["turn-0-3-0"] = 2 },
		"turn-0-3-0 was confirmed, is missing":    func(e *evidence) { delete(e.lines, "turn-0-3-0") },
		"turn-0-0-0 was confirmed, is missing":    func(e *evidence) { e.events[8].Data = []byte(`{}`) },
		"turn-0-0-1 was confirmed, is missing":    func(e *evidence) { delete(e.lines, "turn-0-0-1") },
		"put-0-1 was confirmed, is missing":       func(e *evidence) { delete(e.lines, "put-0-1") },
		"exec-0-2 was confirmed, is missing":      func(e *evidence) { e.direct[1].at = noon.Add(time.Minute) },
		"exec-0-2 was confirmed, is missing, and": func(e *evidence) { e.events[8].Data = []byte(`{"files_at_risk":{"turns":[]}}`) },
	} {
		ev := story(t)
		ev.sent, ev.direct = slices.Clone(ev.sent), slices.Clone(ev.direct)
		ev.lines, ev.ended = maps.Clone(ev.lines), maps.Clone(ev.ended)
		spoil(&ev)
		if v := check(ev); !strings.Contains(strings.Join(v.violations, "\n"), says) {
			t.Errorf("want a complaint that %q, got %q", says, v.violations)
		}
	}
}

// TestPlanHasEveryKind: a full run has its fixed numbers, a small one something of each
// kind, and the same seed gives the same order.
func TestPlanHasEveryKind(t *testing.T) {
	least := map[Kind]int{KillServer: 100, CutPower: 60, FillDisk: 40, KillBox: 1}
	count := map[Kind]int{}
	for _, k := range plan(Full, rand.New(rand.NewPCG(1, 7))) {
		count[k]++
	}
	for k, n := range least {
		if count[k] < n {
			t.Errorf("%d times %s, want %d", count[k], k, n)
		}
	}
	if count[StopServer]+count[StopBox] < 60 {
		t.Errorf("%d stops", count[StopServer]+count[StopBox])
	}
	small := plan(8, rand.New(rand.NewPCG(1, 7)))
	for _, k := range Kinds {
		if !slices.Contains(small, k) {
			t.Errorf("a small run has no %s", k)
		}
	}
	if !slices.Equal(small, plan(8, rand.New(rand.NewPCG(1, 7)))) {
		t.Error("the same seed gives another order")
	}
}
