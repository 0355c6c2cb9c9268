package journal

import (
	"strings"

	"github.com/holdfast-run/holdfast"
)

// EntryTypes are the events that make up a conversation.
func EntryTypes() []holdfast.EventType {
	return []holdfast.EventType{
		holdfast.EventMessageUser, holdfast.EventMessageAssistant, holdfast.EventThinking,
		holdfast.EventToolRequested, holdfast.EventToolDenied, holdfast.EventToolFinished, holdfast.EventToolUnknown,
		holdfast.EventTurnFailed, holdfast.EventTurnInterrupted, holdfast.EventDamaged,
	}
}

// Entry renders one of those events for people; an event of another type has no role.
func Entry(e holdfast.Event) (holdfast.TranscriptEntry, error) {
	t := holdfast.TranscriptEntry{Seq: e.Seq, Turn: e.Turn, Time: e.Time}
	var err error
	switch e.Type {
	case holdfast.EventMessageUser:
		var d holdfast.UserMessage
		err = e.Decode(&d)
		t.Role, t.Text = holdfast.RoleUser, d.Text()
	case holdfast.EventMessageAssistant:
		var d holdfast.AssistantMessage
		err = e.Decode(&d)
		t.Role, t.Text = holdfast.RoleAssistant, d.Text()
	case holdfast.EventThinking:
		var d holdfast.Thinking
		err = e.Decode(&d)
		t.Role, t.Text = holdfast.RoleThinking, d.Text
	case holdfast.EventToolRequested:
		var d holdfast.ToolRequested
		err = e.Decode(&d)
		t.Role, t.ToolUseID, t.Tool, t.Input = holdfast.RoleTool, d.ToolUseID, d.Name, d.Input
	case holdfast.EventToolDenied:
		var d holdfast.ToolDecision
		err = e.Decode(&d)
		t.Role, t.ToolUseID, t.Text, t.Outcome = holdfast.RoleResult, d.ToolUseID, d.Reason, "denied"
	case holdfast.EventToolFinished:
		var d holdfast.ToolFinished
		err = e.Decode(&d)
		t.Role, t.ToolUseID, t.Text, t.Outcome = holdfast.RoleResult, d.ToolUseID, d.Content, string(d.Outcome)
	case holdfast.EventToolUnknown:
		var d holdfast.ToolUnknown
		err = e.Decode(&d)
		t.Role, t.ToolUseID, t.Text, t.Outcome = holdfast.RoleResult, d.ToolUseID, d.Reason, "unknown"
	case holdfast.EventTurnFailed, holdfast.EventTurnInterrupted:
		var d holdfast.TurnEnded
		err = e.Decode(&d)
		t.Role, t.Text, t.Outcome = holdfast.RoleNotice, d.Message, strings.TrimPrefix(string(e.Type), "turn.")
	case holdfast.EventDamaged:
		var d holdfast.Damaged
		err = e.Decode(&d)
		t.Role, t.Text, t.Outcome = holdfast.RoleNotice, "this entry is damaged: "+d.Reason, "damaged"
	}
	return t, err
}
