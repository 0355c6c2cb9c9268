package conversation_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/conversation"
)

// TestTranscript: each kind of entry, and nothing of child agents nor of what is not part of the
// conversation.
//
// WS-R106, WS-R107, WS-R109.
func TestTranscript(t *testing.T) {
	b := &book{}
	b.begin("go")
	b.add(holdfast.EventThinking, holdfast.Thinking{Text: "hm"})
	b.says("see", "a", "b", "c")
	b.add(holdfast.EventToolStarted, holdfast.ToolStarted{ToolUseID: "a"})
	b.add(holdfast.EventToolFinished, holdfast.ToolFinished{ToolUseID: "a", Outcome: holdfast.ExitExit, Content: "out"})
	b.add(holdfast.EventToolDenied, holdfast.ToolDecision{ToolUseID: "b", Reason: "no"})
	b.add(holdfast.EventToolUnknown, holdfast.ToolUnknown{ToolUseID: "c", Reason: "lost"})
	from := len(b.events)
	b.says("a child says", "d")
	b.add(holdfast.EventToolFinished, holdfast.ToolFinished{ToolUseID: "d"})
	for i := from; i < len(b.events); i++ {
		b.events[i].Agent = "a1"
	}
	b.add(holdfast.EventTurnFailed, holdfast.TurnEnded{Message: "why"})
	b.add(holdfast.EventDamaged, holdfast.Damaged{Reason: "bits"})
	b.add(holdfast.EventTurnCompleted, holdfast.TurnEnded{Result: "x"})
	entries, err := conversation.Transcript(b.events)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, fmt.Sprintf("%d %s %q %s%s %s", e.Seq, e.Role, e.Text, e.Tool, e.ToolUseID, e.Outcome))
	}
	want := []string{
		`1 user "go"  `, `3 thinking "hm"  `, `4 assistant "see"  `, `5 tool "" Basha `, `6 tool "" Bashb `, `7 tool "" Bashc `,
		`9 result "out" a exit`, `10 result "no" b denied`, `11 result "lost" c unknown`,
		`15 notice "why"  failed`, `16 notice "this entry is damaged: bits"  damaged`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := conversation.Transcript([]holdfast.Event{{Type: holdfast.EventMessageUser, Data: json.RawMessage(`[]`)}}); !holdfast.IsKind(err, holdfast.KindInternal) {
		t.Error(err)
	}
}

// TestSteps: an event is read without those before it, deltas too; what a child agent says is no
// step, what it asks and uses up is one.
func TestSteps(t *testing.T) {
	of := func(typ holdfast.EventType, agent holdfast.ChildID, data string) string {
		t.Helper()
		step, err := conversation.Of(holdfast.Event{Type: typ, Agent: agent, Data: json.RawMessage(data)})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%T", step)
	}
	for _, c := range []struct {
		typ         holdfast.EventType
		own, childs string
	}{
		{holdfast.EventMessageUser, "*conversation.Message", "<nil>"},
		{holdfast.EventTurnStarted, "*conversation.Begun", "<nil>"},
		{holdfast.EventMessageAssistant, "*conversation.Answer", "*conversation.ChildAnswered"},
		{holdfast.EventToolRequested, "*conversation.Request", "<nil>"},
		{holdfast.EventToolAllowed, "*conversation.Permitted", "<nil>"},
		{holdfast.EventToolStarted, "*conversation.Launched", "<nil>"},
		{holdfast.EventToolFinished, "*conversation.Outcome", "<nil>"},
		{holdfast.EventApprovalAsked, "*conversation.Asked", "*conversation.Asked"},
		{holdfast.EventApprovalExpired, "*conversation.Settled", "*conversation.Settled"},
		{holdfast.EventModelRequest, "*conversation.Called", "*conversation.Called"},
		{holdfast.EventHookRan, "*conversation.Hooked", "<nil>"},
		{holdfast.EventNotice, "*conversation.Noticed", "<nil>"},
		{holdfast.EventBoxLost, "*conversation.BoxEnded", "<nil>"},
		{holdfast.EventSessionResumed, "*conversation.Resumed", "<nil>"},
		{holdfast.EventTurnFailed, "*conversation.End", "<nil>"},
		{holdfast.DeltaText, "*conversation.Piece", "<nil>"},
		{holdfast.DeltaToolOutput, "*conversation.Output", "<nil>"},
		{"from.the.future", "<nil>", "<nil>"},
	} {
		if own, childs := of(c.typ, "", `{}`), of(c.typ, "a1", `{}`); own != c.own || childs != c.childs {
			t.Errorf("%s is %s, of a child agent %s", c.typ, own, childs)
		}
	}
}
