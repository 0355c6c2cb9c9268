package conversation

import (
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Step is the meaning of one event: one of the types of this file, a *Message, an *Answer or a
// *Begun. Its meaning depends on no other event, so a client can begin to read at any place of a log. Deltas have a
// Step too.
type Step interface {
	// At returns the event's number, 0 for a delta, and its turn.
	At() (seq int64, turn holdfast.TurnID)
}

// Thought is thinking of the answer that comes next.
type Thought struct {
	Place
	holdfast.Thinking
}

// Request is a tool use that the model asked for.
type Request struct {
	Place
	holdfast.ToolRequested
}

// Permitted is a tool use that was allowed.
type Permitted struct {
	Place
	holdfast.ToolDecision
}

// Launched records that a tool use is about to be sent to its box.
type Launched struct {
	Place
	Time time.Time
	holdfast.ToolStarted
}

// Outcome is the result of a tool use.
type Outcome struct {
	Place
	ToolUseID string
	How       Result
	// Text is the tool's output, or why the call was denied or lost.
	Text    string
	IsError bool
	// By names the source of a denial. Finished is the tool.finished payload; nil if the call was
	// denied or lost.
	By       string
	Finished *holdfast.ToolFinished
}

// End is the end of a turn. How is the type of the event that ended it.
type End struct {
	Place
	How holdfast.EventType
	holdfast.TurnEnded
}

// EndText describes in words the end of a turn that failed or was interrupted. typ is the type of the event
// that ended it, message the reason in that event.
func EndText(typ holdfast.EventType, message string) string {
	how, text := strings.TrimPrefix(string(typ), "turn."), "the turn "
	if typ == holdfast.EventTurnInterrupted {
		text += "was "
	}
	if text += how; message != "" && message != how {
		text += ": " + message
	}
	return text
}

// Asked is a question to a person, Settled its answer or expiry. Questions of child agents are
// included, because the session's turn waits for them.
type Asked struct {
	Place
	Time     time.Time
	Question holdfast.Approval
}

// Settled is the answer to a question, or its expiry.
type Settled struct {
	Place
	Time time.Time
	holdfast.ApprovalAnswered
}

// Called is a model call that has an event of its own. Calls of child agents are included, because the
// session's turn pays for them.
type Called struct {
	Place
	holdfast.ModelRequest
}

// ChildAnswered is the usage of a child agent's answer. The text of the answer is not part of the conversation.
type ChildAnswered struct {
	Place
	Usage holdfast.Usage
}

// Hooked is a run of a hook.
type Hooked struct {
	Place
	holdfast.HookRan
}

// Noticed is a notice event, with its time.
type Noticed struct {
	Place
	Time time.Time
	holdfast.Notice
}

// BoxEnded is an event about a box, of the type How: it was stopped or lost, or it hit its limit of
// memory or processes.
type BoxEnded struct {
	Place
	How holdfast.EventType
	holdfast.BoxEnded
}

// Resumed is the resume of a session.
type Resumed struct {
	Place
	holdfast.Receipt
}

// Rewound is a move of the conversation's head back to the end of a turn.
type Rewound struct {
	Place
	holdfast.Rewound
}

// Piece is a delta of the answer's text, or of its thinking.
type Piece struct {
	Place
	Thinking bool
	Delta    holdfast.TextDelta
}

// Output is a delta of what a tool prints.
type Output struct {
	Place
	holdfast.ToolOutput
}

// Of returns the step that an event describes. It returns nil for most events of child agents (not for their questions
// and their usage), and for events of types that no conversation needs or that this version does not know. It fails
// with internal for an event that is damaged or does not decode.
func Of(ev holdfast.Event) (Step, error) {
	if err := ev.Whole(); err != nil {
		return nil, err
	}
	at := Place{ev.Seq, ev.Turn}
	switch ev.Type {
	case holdfast.EventApprovalAsked:
		s := &Asked{Place: at, Time: ev.Time}
		return s, ev.Decode(&s.Question)
	case holdfast.EventApprovalAnswered, holdfast.EventApprovalExpired:
		s := &Settled{Place: at, Time: ev.Time}
		return s, ev.Decode(&s.ApprovalAnswered)
	case holdfast.EventModelRequest:
		s := &Called{Place: at}
		return s, ev.Decode(&s.ModelRequest)
	}
	if ev.Agent != "" {
		return child(at, ev)
	}
	switch ev.Type {
	case holdfast.EventMessageUser:
		var m holdfast.UserMessage
		err := ev.Decode(&m)
		return &Message{at, m.Text(), m.Steer}, err
	case holdfast.EventThinking:
		s := &Thought{Place: at}
		return s, ev.Decode(&s.Thinking)
	case holdfast.EventMessageAssistant:
		s := &Answer{Place: at}
		if scanAnswer(ev.Data, &s.AssistantMessage) {
			return s, nil
		}
		s.AssistantMessage = holdfast.AssistantMessage{}
		return s, ev.Decode(&s.AssistantMessage)
	case holdfast.EventTurnStarted:
		return &Begun{at}, nil
	case holdfast.EventTurnCompleted, holdfast.EventTurnFailed, holdfast.EventTurnInterrupted:
		s := &End{Place: at, How: ev.Type}
		return s, ev.Decode(&s.TurnEnded)
	}
	return ofTool(at, ev)
}

func child(at Place, ev holdfast.Event) (Step, error) {
	if ev.Type != holdfast.EventMessageAssistant {
		return nil, nil
	}
	var m holdfast.AssistantMessage
	err := ev.Decode(&m)
	return &ChildAnswered{at, m.Usage}, err
}

func ofTool(at Place, ev holdfast.Event) (Step, error) {
	switch ev.Type {
	case holdfast.EventToolRequested:
		s := &Request{Place: at}
		if scanRequest(ev.Data, &s.ToolRequested) {
			return s, nil
		}
		s.ToolRequested = holdfast.ToolRequested{}
		return s, ev.Decode(&s.ToolRequested)
	case holdfast.EventToolAllowed:
		s := &Permitted{Place: at}
		return s, ev.Decode(&s.ToolDecision)
	case holdfast.EventToolStarted:
		s := &Launched{Place: at, Time: ev.Time}
		return s, ev.Decode(&s.ToolStarted)
	case holdfast.EventToolFinished:
		f := new(holdfast.ToolFinished)
		err := ev.Decode(f)
		return &Outcome{Place: at, ToolUseID: f.ToolUseID, How: Finished, Text: f.Content, IsError: f.IsError, Finished: f}, err
	case holdfast.EventToolDenied:
		var d holdfast.ToolDecision
		err := ev.Decode(&d)
		return &Outcome{Place: at, ToolUseID: d.ToolUseID, How: Denied, Text: d.Reason, IsError: true, By: d.By}, err
	case holdfast.EventToolUnknown:
		var u holdfast.ToolUnknown
		err := ev.Decode(&u)
		return &Outcome{Place: at, ToolUseID: u.ToolUseID, How: Lost, Text: u.Reason, IsError: true}, err
	}
	return ofRest(at, ev)
}

// ofRest returns the step of an event that is neither a message nor a tool call, and of deltas.
func ofRest(at Place, ev holdfast.Event) (Step, error) {
	switch ev.Type {
	case holdfast.EventHookRan:
		s := &Hooked{Place: at}
		return s, ev.Decode(&s.HookRan)
	case holdfast.EventNotice:
		s := &Noticed{Place: at, Time: ev.Time}
		return s, ev.Decode(&s.Notice)
	case holdfast.EventBoxStopped, holdfast.EventBoxLost, holdfast.EventBoxOOM, holdfast.EventBoxPids:
		s := &BoxEnded{Place: at, How: ev.Type}
		return s, ev.Decode(&s.BoxEnded)
	case holdfast.EventSessionResumed:
		s := &Resumed{Place: at}
		return s, ev.Decode(&s.Receipt)
	case holdfast.EventSessionRewound:
		s := &Rewound{Place: at}
		return s, ev.Decode(&s.Rewound)
	case holdfast.DeltaText, holdfast.DeltaThinking:
		s := &Piece{Place: at, Thinking: ev.Type == holdfast.DeltaThinking}
		return s, ev.Decode(&s.Delta)
	case holdfast.DeltaToolOutput:
		s := &Output{Place: at}
		return s, ev.Decode(&s.ToolOutput)
	}
	return nil, nil
}
