package loop

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
)

// UseState is the progress of a tool use. The zero value is invalid.
type UseState int

// The states in order. Requested: recorded, not decided. Allowed: decided, not begun (a mutating
// call has no intent yet). Started: the intent is recorded, so the box may have received the call.
// Answered: the use has a result.
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
	// Rewritten is the input that the policy put in the place of Input; nil if it did not.
	Rewritten json.RawMessage
	State     UseState
	// Started is the recorded intent of a use in state Started, Began when it was
	// recorded.
	Started holdfast.ToolStarted
	Began   time.Time
	// Result is the answer of a use in state Answered.
	Result model.Block
}

// runs returns the input that the tool gets.
func (u *Use) runs() json.RawMessage {
	if u.Rewritten != nil {
		return u.Rewritten
	}
	return u.Input
}

// Conversation is the state of a turn from which Run continues. Run takes ownership of the slices,
// but not of the blocks in them.
type Conversation struct {
	Session holdfast.SessionID
	Mode    holdfast.Mode
	Model   string
	System  string
	// Messages alternate between user and assistant, begin and end with the user, and answer every
	// tool use. If Pending is set, the last message is instead the assistant message with those uses.
	Messages []model.Message
	// Counted is the size of the first messages of Messages, which Run does not change.
	Counted model.Counted
	Pending []Use
	// Hooked are texts of hooks about the results of Pending. In the conversation they come right after these results.
	Hooked []string
	// Joined are steering messages of the user that follow the results of Pending.
	Joined []string
	// Seen is the number of the newest log entry in Messages and Joined.
	Seen int64
	// Usage and Steps are the tokens and model calls that the turn has used already.
	Usage holdfast.Usage
	Steps int
	// Reissue is true if a restart may have cut off a model call whose deltas were shown.
	Reissue bool
	// Parked is the time until which the turn waits for its provider; zero if it does not.
	Parked time.Time
}

// Result is the result of a turn that ended normally.
type Result struct {
	// Final are the entries of the last answer. They are not recorded: the caller records them
	// together with the end of the turn.
	Final []Entry
	// Seen is the number of the newest log entry that the last model call included.
	Seen       int64
	Text       string
	StopReason string
	// Usage and Steps are the totals of the turn, including those of the Conversation.
	Usage holdfast.Usage
	Steps int
	// Messages are the conversation including the last answer.
	Messages []model.Message
}

// The texts that answer a tool use without a result.
const (
	textInterrupted = "interrupted: this call was not carried out"
	textUnknown     = "the outcome of this call is unknown: %s; check before repeating it"
	// ReasonBoxDied and ReasonServerEnded are reasons of tool.unknown events.
	ReasonBoxDied     = "the sandbox ended while it ran"
	ReasonServerEnded = "the server ended while it ran; it may have done its work"
)

func unknownText(reason string) string { return fmt.Sprintf(textUnknown, reason) }

// answerTo returns a tool result as a block for the model.
func answerTo(id, content string, isError bool) model.Block {
	return model.Block{Type: model.ToolResult, ID: id, Text: content, IsError: isError}
}

// FinishedResult returns a tool.finished event as a block for the model.
func FinishedResult(f holdfast.ToolFinished) model.Block {
	return answerTo(f.ToolUseID, f.Content, f.IsError)
}

// DeniedResult returns a tool.denied event as a block for the model.
func DeniedResult(d holdfast.ToolDecision) model.Block {
	return answerTo(d.ToolUseID, "denied: "+d.Reason, true)
}

// UnknownResult returns a tool.unknown event as a block for the model.
func UnknownResult(u holdfast.ToolUnknown) model.Block {
	return answerTo(u.ToolUseID, unknownText(u.Reason), true)
}

// AbandonedResult returns the block for the model about a use whose turn ended before the use had a
// result.
func AbandonedResult(u Use) model.Block {
	if u.State == Started {
		return answerTo(u.ID, unknownText("its turn ended before it did"), true)
	}
	return answerTo(u.ID, textInterrupted, true)
}
