package conversation

import (
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// EntryTypes returns the event types that a transcript shows.
func EntryTypes() []holdfast.EventType {
	return []holdfast.EventType{
		holdfast.EventMessageUser, holdfast.EventMessageAssistant, holdfast.EventThinking,
		holdfast.EventToolRequested, holdfast.EventToolDenied, holdfast.EventToolFinished, holdfast.EventToolUnknown,
		holdfast.EventTurnFailed, holdfast.EventTurnInterrupted, holdfast.EventSessionRewound, holdfast.EventDamaged,
	}
}

// Entry returns an event as an entry of the transcript. An event that a transcript does not show
// gives an entry without a role.
func Entry(e holdfast.Event) (holdfast.TranscriptEntry, error) {
	t := holdfast.TranscriptEntry{Seq: e.Seq, Turn: e.Turn, Time: e.Time}
	if e.Type == holdfast.EventDamaged {
		var d holdfast.Damaged
		err := e.Decode(&d)
		t.Role, t.Text, t.Outcome = holdfast.RoleNotice, "this entry is damaged: "+d.Reason, "damaged"
		return t, err
	}
	step, err := Of(e)
	switch s := step.(type) {
	case *Message:
		t.Role, t.Text = holdfast.RoleUser, s.Text
	case *Answer:
		t.Role, t.Text = holdfast.RoleAssistant, s.AssistantMessage.Text()
	case *Thought:
		t.Role, t.Text = holdfast.RoleThinking, s.Text
	case *Request:
		t.Role, t.ToolUseID, t.Tool, t.Input = holdfast.RoleTool, s.ToolUseID, s.Name, s.Input
	case *Outcome:
		t.Role, t.ToolUseID, t.Text, t.Outcome = holdfast.RoleResult, s.ToolUseID, s.Text, fmt.Sprint(s.How)
		if s.Finished != nil {
			t.Outcome = string(s.Finished.Outcome)
		}
	case *Rewound:
		t.Role, t.Outcome = holdfast.RoleNotice, "rewound"
		t.Text = fmt.Sprintf("the session went back to event #%d: what stands between that event and this one belongs to the conversation no more", s.Rewound.Seq)
	case *End:
		if s.How != holdfast.EventTurnCompleted {
			t.Role, t.Text, t.Outcome = holdfast.RoleNotice, s.Message, strings.TrimPrefix(string(s.How), "turn.")
		}
	}
	return t, err
}

// Transcript returns the transcript entries of events; events that it does not show are left out.
func Transcript(events []holdfast.Event) ([]holdfast.TranscriptEntry, error) {
	out := []holdfast.TranscriptEntry{}
	for _, e := range events {
		entry, err := Entry(e)
		if err != nil {
			return nil, err
		}
		if entry.Role != "" {
			out = append(out, entry)
		}
	}
	return out, nil
}
