package torture

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

// TestWorkspacePlanHitsBothAtEachPoint: the smallest run that must prove something kills the server and boxd twice at
// each point.
func TestWorkspacePlanHitsBothAtEachPoint(t *testing.T) {
	r := Result{Faults: map[Kind]int{}, Points: map[string]int{}, Workspace: &Workspace{Together: 5, Adopted: 5}}
	both := map[fault]int{}
	for _, f := range planWorkspace(enoughRounds) {
		r.Faults[f.kind]++
		r.Points[f.point]++
		both[f]++
	}
	for _, p := range Points {
		if both[fault{KillServer, p}] != 2 || both[fault{KillBox, p}] != 2 {
			t.Errorf("at %s: %v", p, both)
		}
	}
	if got := r.workspaceShortfalls(enoughRounds); len(got) != 0 {
		t.Error(got)
	}
	r.Faults[KillServer], r.Faults[KillBox], r.Points["running"], *r.Workspace = 9, 4, 1, Workspace{Together: 4, Adopted: 4}
	if got := r.workspaceShortfalls(enoughRounds); len(got) != 5 {
		t.Errorf("%d shortfalls, want 5: %q", len(got), got)
	}
	if got := r.workspaceShortfalls(enoughRounds - 1); len(got) != 0 {
		t.Errorf("a short run has %q", got)
	}
}

// sharing is the story of a session of a workspace: its first turn has two calls, its second one whose outcome another
// server committed, and one whose box was killed. A sibling began and ended a command of its own.
func sharing(t *testing.T) evidence {
	t.Helper()
	ev := story(t)
	ev.lines = map[string]int{"turn-0-0-0": 1, "turn-0-0-1": 1, "turn-0-3-0": 1, "put-0-1": 1, "exec-0-2": 1}
	ev.began = map[string]int{"turn-0-0-0": 1, "turn-0-3-0": 1, "turn-0-3-1": 1, "turn-1-0-0": 1}
	ev.ends = map[string]int{"turn-0-0-0": 1, "turn-0-3-0": 1}
	ev.restarts = []time.Time{noon.Add(14500 * time.Millisecond)}
	for i, at := range []int{1, 11} {
		ev.sent[i].text = []string{"turn-0-0-0 turn-0-0-0 turn-0-0-1", "turn-0-3-0 turn-0-3-1"}[i]
		data, err := json.Marshal(holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: ev.sent[i].text}}})
		if err != nil {
			t.Fatal(err)
		}
		ev.events[at].Data = data
	}
	for _, e := range ev.events {
		entry := holdfast.TranscriptEntry{Turn: e.Turn}
		switch e.Type {
		case holdfast.EventMessageUser:
			var m holdfast.UserMessage
			if err := e.Decode(&m); err != nil {
				t.Fatal(err)
			}
			entry.Role, entry.Text = holdfast.RoleUser, m.Text()
		case holdfast.EventToolRequested:
			var d holdfast.ToolRequested
			if err := e.Decode(&d); err != nil {
				t.Fatal(err)
			}
			entry.Role, entry.ToolUseID, entry.Input = holdfast.RoleTool, d.ToolUseID, d.Input
		case holdfast.EventToolFinished, holdfast.EventToolUnknown:
			var d holdfast.ToolFinished
			if err := e.Decode(&d); err != nil {
				t.Fatal(err)
			}
			entry.Role, entry.ToolUseID = holdfast.RoleResult, d.ToolUseID
		case holdfast.EventTurnCompleted:
			entry.Role, entry.Text = holdfast.RoleAssistant, answers
		default:
			continue
		}
		ev.entries = append(ev.entries, entry)
	}
	return ev
}

func TestCheckAcceptsSiblings(t *testing.T) {
	r := Result{Workspace: &Workspace{}}
	if r.check(sharing(t)); len(r.Violations) != 0 || r.Effects != 5 || r.Unknown != 1 || r.Lost != 0 || r.Workspace.Adopted != 1 {
		t.Errorf("%+v, %+v", r, r.Workspace)
	}
}

// TestCheckFindsWhatSiblingsDo: what a session of a shared box may not find in its log, its home and its tree.
func TestCheckFindsWhatSiblingsDo(t *testing.T) {
	finished := func(e *evidence, at int, content string, how holdfast.ExitClass) {
		e.events[at].Data = fmt.Appendf(nil, `{"tool_use_id":"u0","outcome":%q,"content":%q}`, how, content)
	}
	for says, spoil := range map[string]func(*evidence){
		"turn-0-3-0 began 2 times": func(e *evidence) { e.began["turn-0-3-0"] = 2 },
		"turn-0-3-1 began 2 times": func(e *evidence) { e.began["turn-0-3-1"] = 2 }, // its outcome is unknown
		"turn-0-3-1 began, but":    func(e *evidence) { e.events[16].Type = holdfast.EventNotice },
		"began 0 times, its file":  func(e *evidence) { delete(e.began, "turn-0-0-0") },
		"began 1 times, its file has 0 lines, and the session's home 1": func(e *evidence) { e.ends["turn-0-3-1"] = 1 },
		"ended 0 times": func(e *evidence) { delete(e.ends, "turn-0-3-0") },
		"ended 2 times": func(e *evidence) { e.ends["turn-0-3-0"] = 2 },
		"the line \"turn-1-0-0\", which no command": func(e *evidence) { e.ends["turn-1-0-0"] = 1 },
		"is that of turn-1-0-0, but":                func(e *evidence) { finished(e, 14, "turn-0-3-0 has ended, turn-1-0-0 too", holdfast.ExitOK) },
		"the output of the command of turn-0-3-0":   func(e *evidence) { finished(e, 14, "", holdfast.ExitOK) },
		"the command of turn-0-3-0 is canceled":     func(e *evidence) { finished(e, 14, "", holdfast.ExitCanceled) },
		"the transcript has \"\" as its text":       func(e *evidence) { e.entries = []holdfast.TranscriptEntry{} },
		"did not complete":                          func(e *evidence) { e.events[18].Type = holdfast.EventTurnFailed },
		"its message asks for":                      func(e *evidence) { e.entries[1].Role = holdfast.RoleThinking },
		"has 0 results of tool use u0":              func(e *evidence) { e.entries[2].Role = holdfast.RoleThinking },
		"has 2 results of tool use u0":              func(e *evidence) { e.entries = append(e.entries, e.entries[2]) },
		"has \"\" as the answer":                    func(e *evidence) { e.entries = e.entries[:len(e.entries)-1] },
	} {
		ev := sharing(t)
		spoil(&ev)
		r := Result{Workspace: &Workspace{}}
		if r.check(ev); !strings.Contains(strings.Join(r.Violations, "\n"), says) {
			t.Errorf("want a complaint that %q, got %q", says, r.Violations)
		}
	}
}
