package torture

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

// story is a log of two turns and a power cut: of the first turn one file is synced and one was
// lost and named; the second turn has one file, and a call whose box was killed.
func story(t *testing.T) evidence {
	t.Helper()
	ev := evidence{
		id: "s", sent: []message{{turnA, "a"}, {turnB, "b"}}, ended: map[holdfast.TurnID]int64{turnA: 10, turnB: 19},
		direct: []effect{{name: "put-0-1", synced: true, at: noon}, {name: "exec-0-2", at: noon.Add(10 * time.Second)}},
		lines:  map[string]int{"turn-0-0-1": 1, "turn-0-3-0": 1, "put-0-1": 1},
		kills:  []kill{{from: noon.Add(17500 * time.Millisecond), to: noon.Add(17600 * time.Millisecond), boot: "b1"}},
	}
	add := func(turn holdfast.TurnID, typ holdfast.EventType, data any) {
		b, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		n := len(ev.events) + 1
		ev.events = append(ev.events, holdfast.Event{Seq: int64(n), Type: typ, Turn: turn, Data: b, Time: noon.Add(time.Duration(n) * time.Second)})
	}
	begin := func(turn holdfast.TurnID, use, name, file string) {
		add(turn, holdfast.EventToolRequested, holdfast.ToolRequested{ToolUseID: use, Name: name, Input: json.RawMessage(fmt.Sprintf("%q", file))})
		add(turn, holdfast.EventToolStarted, holdfast.ToolStarted{ToolUseID: use, Boot: "b1"})
	}
	tool := func(turn holdfast.TurnID, use, name, file string) {
		begin(turn, use, name, file)
		add(turn, holdfast.EventToolFinished, holdfast.ToolFinished{ToolUseID: use, Outcome: holdfast.ExitOK, Content: file + " has ended"})
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
	begin(turnB, "u1", "Bash", "turn-0-3-1")
	add(turnB, holdfast.EventToolUnknown, holdfast.ToolUnknown{ToolUseID: "u1"})
	add(turnB, holdfast.EventTurnCompleted, holdfast.TurnEnded{})
	return ev
}

func TestCheckAcceptsWhatIsRight(t *testing.T) {
	var r Result
	r.check(story(t))
	if len(r.Violations) != 0 || r.Messages != 2 || r.Effects != 5 || r.Lost != 2 || r.Untold != 0 || r.Unknown != 1 {
		t.Errorf("%+v", r)
	}
	ev := story(t)
	ev.lines["turn-0-3-1"] = 1 // an unknown outcome may have happened
	// The killed life is unknown, and the server had not noticed the kill at the intent.
	ev.kills = []kill{{from: noon.Add(16400 * time.Millisecond), to: noon.Add(16500 * time.Millisecond)}}
	var again Result
	if again.check(ev); len(again.Violations) != 0 {
		t.Error(again.Violations)
	}
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	for says, spoil := range map[string]func(*evidence){
		"has number":                              func(e *evidence) { e.events[4].Seq = 9 },
		"after event 3 with event 5":              func(e *evidence) { e.holes = [][2]int64{{3, 5}} },
		"has \"b\" as its text":                   func(e *evidence) { e.sent[1].text = "c" },
		"has \"\" as its text":                    func(e *evidence) { e.sent[1].turn = "other" },
		"has 2 terminal events":                   func(e *evidence) { e.events[18].Turn = turnA },
		"has 0 terminal events":                   func(e *evidence) { e.events = e.events[:18] },
		"as event 6, but":                         func(e *evidence) { e.ended[turnA] = 6 },
		"turn-0-3-0 happened 2 times":             func(e *evidence) { e.lines["turn-0-3-0"] = 2 },
		"turn-0-3-1 happened 2 times":             func(e *evidence) { e.lines["turn-0-3-1"] = 2 },
		"turn-0-3-0 was confirmed, is missing":    func(e *evidence) { delete(e.lines, "turn-0-3-0") },
		"turn-0-0-0 was confirmed, is missing":    func(e *evidence) { e.events[10].Data = []byte(`{}`) },
		"turn-0-0-1 was confirmed, is missing":    func(e *evidence) { delete(e.lines, "turn-0-0-1") },
		"put-0-1 was confirmed, is missing":       func(e *evidence) { delete(e.lines, "put-0-1") },
		"exec-0-2 was confirmed, is missing":      func(e *evidence) { e.direct[1].at = noon.Add(time.Minute) },
		"exec-0-2 was confirmed, is missing, and": func(e *evidence) { e.events[10].Data = []byte(`{"files_at_risk":{"turns":[]}}`) },
		"no tool use should write it":             func(e *evidence) { e.lines["turn-9-9-9"] = 1 },
		"it has 0 outcomes":                       func(e *evidence) { e.events[14].Type = holdfast.EventNotice },
		"has no intent":                           func(e *evidence) { e.events[7].Type = holdfast.EventNotice },
		"its box was not killed":                  func(e *evidence) { e.kills = nil },
		"but its box was not killed":              func(e *evidence) { e.kills[0].boot = "b2" },
		"u1: its outcome is unknown, but its box": func(e *evidence) {
			e.kills = []kill{{from: noon.Add(15 * time.Second), to: noon.Add(15 * time.Second)}}
		},
		"turn-0-0-0 was confirmed, is missing, and a snapshot holds it": func(e *evidence) { e.taken(9, holdfast.CheckpointTurn, 9) },
		"exec-0-2 was confirmed, is missing, and a snapshot holds it": func(e *evidence) {
			e.direct[1].at = noon.Add(5 * time.Second)
			e.taken(9, holdfast.CheckpointDirect, 1)
		},
		"its box was not killed between": func(e *evidence) { e.kills[0].from = noon.Add(time.Minute) },
	} {
		ev := story(t)
		spoil(&ev)
		var r Result
		if r.check(ev); !strings.Contains(strings.Join(r.Violations, "\n"), says) {
			t.Errorf("want a complaint that %q, got %q", says, r.Violations)
		}
	}
}

// taken makes an event that of a snapshot of the files at another.
func (e *evidence) taken(at int, reason holdfast.CheckpointReason, seq int64) {
	data, _ := json.Marshal(holdfast.SnapshotTaken{Reason: reason, Seq: seq})
	e.events[at].Type, e.events[at].Turn, e.events[at].Data = holdfast.EventSnapshotTaken, "", data
}

// TestPlanHasEveryKind: a full run on a disk has its fixed numbers, a small one something of each
// kind, and the same seed gives the same order. Without a disk a third are kills of boxd.
func TestPlanHasEveryKind(t *testing.T) {
	counts := func(faults []fault) map[Kind]int {
		n := map[Kind]int{}
		for _, f := range faults {
			n[f.kind]++
		}
		return n
	}
	seeded := func() *rand.Rand { return rand.New(rand.NewPCG(1, 7)) }
	if got := counts(plan(fullDisk, true, seeded())); !maps.Equal(got, share) {
		t.Errorf("a full run has %v, want %v", got, share)
	}
	small := plan(8, true, seeded())
	if got := counts(small); len(small) != 8 || len(got) != len(Kinds) {
		t.Errorf("a small run has only %v", got)
	}
	if !slices.Equal(small, plan(8, true, seeded())) {
		t.Error("the same seed gives another order")
	}
	if got := counts(plan(full, false, nil)); got[KillServer] != 107 || got[KillBox] != 53 {
		t.Errorf("a run without a disk has %v", got)
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
	r := Result{Faults: map[Kind]int{KillServer: 100, KillBox: 50}, InTurn: 105, Points: map[string]int{}}
	for _, p := range Points {
		r.Points[p] = 5
	}
	if got := r.shortfalls(); len(got) != 0 {
		t.Error(got)
	}
	r.Faults[KillServer], r.Faults[KillBox], r.InTurn, r.Points["running"] = 99, 49, 99, 4
	if got := r.shortfalls(); len(got) != 4 {
		t.Errorf("%d shortfalls, want 4: %q", len(got), got)
	}
}
