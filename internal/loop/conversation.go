package loop

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
)

// UseState is how far a tool use got. The zero value is illegal.
type UseState int

// The states, in order. Requested: recorded, not decided. Allowed: decided, not
// begun (a mutating call has no intent yet). Started: the intent is recorded, so
// the call may have reached the box. Answered: the result stands.
const (
	Requested UseState = iota + 1
	Allowed
	Started
	Answered
)

// Use is a tool use of the newest assistant message.
type Use struct {
	ID    string
	Name  string
	Input json.RawMessage
	// Rewritten is what the tool runs with instead, where a policy said so.
	Rewritten json.RawMessage
	State     UseState
	// Started is the recorded intent of a use in state Started, Began when it was
	// recorded.
	Started holdfast.ToolStarted
	Began   time.Time
	// Result is the answer of a use in state Answered.
	Result model.Block
}

// runs is the input that the tool gets.
func (u *Use) runs() json.RawMessage {
	if u.Rewritten != nil {
		return u.Rewritten
	}
	return u.Input
}

// Conversation is where a turn stands. Run takes ownership of the slices, not of
// the blocks in them.
type Conversation struct {
	Session holdfast.SessionID
	Mode    holdfast.Mode
	Model   string
	System  string
	// Messages alternate, begin and end with the user, and answer every tool use;
	// but with Pending the last one is the assistant message whose uses those are.
	Messages []model.Message
	Pending  []Use
	// Hooked are what hooks said to the answers of Pending; it comes after them.
	Hooked []string
	// Joined are user texts that come after the answers of Pending.
	Joined []string
	// Seen is the newest log entry in Messages and Joined.
	Seen int64
	// Usage and Steps are what the turn has used up already.
	Usage holdfast.Usage
	Steps int
	// Reissue: a model call of this turn may have been cut off, its deltas shown.
	Reissue bool
	// Parked is until when the turn waits for its provider.
	Parked time.Time
}

// Result is how a turn ended well.
type Result struct {
	// Final are the last answer's entries. They are not recorded: the caller does
	// that together with the end of the turn.
	Final []Entry
	// Seen is the newest log entry that the last model call took into account.
	Seen       int64
	Text       string
	StopReason string
	// Usage and Steps count the whole turn, what came in with the Conversation included.
	Usage holdfast.Usage
	Steps int
	// Messages are the conversation as far as it went, the last answer included.
	Messages []model.Message
}

// The texts that answer a tool use nobody can answer any more.
const (
	textInterrupted = "interrupted: this call was not carried out"
	textUnknown     = "the outcome of this call is unknown: %s; check before repeating it"
	// The Reasons of tool.unknown events.
	ReasonBoxDied     = "the sandbox ended while it ran"
	ReasonServerEnded = "the server ended while it ran; it may have done its work"
)

func unknownText(reason string) string { return fmt.Sprintf(textUnknown, reason) }

// answerTo renders a result for the model.
func answerTo(id, content string, isError bool) model.Block {
	return model.Block{Type: model.ToolResult, ID: id, Text: content, IsError: isError}
}

// FinishedResult is what the model sees of a tool.finished event.
func FinishedResult(f holdfast.ToolFinished) model.Block {
	return answerTo(f.ToolUseID, f.Content, f.IsError)
}

// DeniedResult is what the model sees of a tool.denied event.
func DeniedResult(d holdfast.ToolDecision) model.Block {
	return answerTo(d.ToolUseID, "denied: "+d.Reason, true)
}

// UnknownResult is what the model sees of a tool.unknown event.
func UnknownResult(u holdfast.ToolUnknown) model.Block {
	return answerTo(u.ToolUseID, unknownText(u.Reason), true)
}

// AbandonedResult is what the model sees of a use whose turn ended before it was
// answered.
func AbandonedResult(u Use) model.Block {
	if u.State == Started {
		return answerTo(u.ID, unknownText("its turn ended before it did"), true)
	}
	return answerTo(u.ID, textInterrupted, true)
}
