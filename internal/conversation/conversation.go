// Package conversation folds a session's log into messages, answers, tool uses, hook and box events
// that an agent must know of, and the newest turn's usage and waits. For readers that begin in the
// middle of a log, Of interprets one event; the fold is made of these steps.
//
// The packages that need the log as a conversation import it: the runtimes, the engine, the store's
// search index, the API, the servers of other protocols, the command line. It imports the
// vocabulary. Invariant: a Conversation depends on the events alone, so every reader of a log gets
// the same one.
package conversation

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Conversation is the content of a session's log up to an event. The zero value is the conversation of an empty log. A
// value with only Seq set contains nothing from the events up to Seq; the next event to Add is the one after it.
//
// A reader may set View and must not change anything else. Not safe for concurrent use.
type Conversation struct {
	// Seq is the number of the newest event that was read.
	Seq int64
	// Items are the messages, answers, tool uses and other entries, in log order.
	Items []Item
	// Completed is the number of completed turns.
	Completed int64
	// Turn is the newest turn that started.
	Turn Turn
	// View is a reader's own data about the items. The conversation stores it until the reader reads again.
	// Meanwhile items are only added, and a Use changes only until an Answer, an Ended or a Message that
	// joins no turn follows it. A rewind, which replaces the items, removes the View.
	View any

	// bytes is the approximate memory of the items.
	bytes int64
	// said is the newest message that is not a steering message.
	said *Message
	// thinking is the thinking of the answer that comes next.
	thinking []holdfast.Thinking
	// uses are the tool uses of the newest answer and of the answers that it continues; nil once another answer,
	// the end of the turn, or a message that does not join the turn follows.
	uses []*Use
	// loose are tool uses that were requested without an answer that names them.
	loose []*Use
	// rewinds are the rewinds in the log, in order. lines has for each of them the items of the conversation
	// just before the rewind.
	rewinds []rewind
	lines   [][]Item
	// late are the events of decisions on tool uses and of their intents. Only Settle decodes them, because
	// only uses without a result need them.
	late []holdfast.Event
}

// Item is a *Message, *Answer, *Use, *Begun, *Ended or *Aside.
type Item interface {
	// At returns the number of the item's event and the turn that it belongs to.
	At() (seq int64, turn holdfast.TurnID)
}

// Place is the position of an item in the log: its event's number and its turn.
type Place struct {
	Seq  int64
	Turn holdfast.TurnID
}

// At implements Item.
func (p Place) At() (int64, holdfast.TurnID) { return p.Seq, p.Turn }

// Message is a message of the user. Steer marks one that joined a running turn.
type Message struct {
	Place
	Text  string
	Steer bool
}

// Answer is one answer of the model, with the tool uses that it asks for.
type Answer struct {
	Place
	holdfast.AssistantMessage
	// Thinking are the thinking blocks of the answer; Parts mark their positions.
	Thinking []holdfast.Thinking
	// Continues is true if this answer is the rest of the previous answer: calls of that one had no result
	// yet.
	Continues bool
	// Uses are the tool uses that the answer's parts name, except those that the continued answer
	// already has.
	Uses []*Use
}

// Text returns the answer's text parts, joined by line breaks.
func (a *Answer) Text() string {
	var text []string
	for _, p := range a.Parts {
		if s := p.Shown(); s != "" {
			text = append(text, s)
		}
	}
	return strings.Join(text, "\n")
}

// State is the progress of a tool use.
type State int

// The states in order. Named: an answer names the use, and the log has nothing else about it.
// Requested: not decided yet. Allowed: decided, not begun. Started: its intent is in the log, so
// the box may have received it. Answered: its result is in the log.
const (
	Named State = iota
	Requested
	Allowed
	Started
	Answered
)

// Result is the kind of result of a tool use.
type Result int

// The results. Lost means that it is unknown whether the call ran.
const (
	Finished Result = iota + 1
	Denied
	Lost
)

// String returns the result as a transcript shows it.
func (r Result) String() string { return [...]string{"", "finished", "denied", "unknown"}[r] }

// Use is a tool use. Its Place is that of the event that requested it.
type Use struct {
	Place
	ID    string
	Name  string
	Input json.RawMessage
	State State
	// Rewritten is the input that a decision put in the place of Input; nil if the decision changed nothing.
	Rewritten json.RawMessage
	// Intent is the tool.started event of a use in state Started, Began the time of that event.
	Intent holdfast.ToolStarted
	Began  time.Time
	// Result, Text and IsError are set in state Answered. Text is the tool's output, or why the call
	// was denied or lost.
	Result  Result
	Text    string
	IsError bool
}

// Begun is the start of a turn.
type Begun struct{ Place }

// Ended is the end of a turn.
type Ended struct {
	Place
	// How is the type of the event that ended the turn. Message is why the turn failed or was interrupted.
	How     holdfast.EventType
	Message string
	// Completed is the number of completed turns so far, this one included.
	Completed int64
}

// Aside is an event that an agent must know of and that is neither a message nor a tool call. One of Hook, AtRisk,
// Box and Lost is set.
type Aside struct {
	Place
	// Hook is the run of a hook.
	Hook *holdfast.HookRan
	// AtRisk is the text of a notice that a power cut may have taken files.
	AtRisk string
	// Box is the end of a box in which processes were running.
	Box *holdfast.BoxEnded
	// Lost lists what a resume of the session could not restore.
	Lost []string

	size int
}

// Turn is the state of the newest turn.
type Turn struct {
	ID holdfast.TurnID
	// Live is true until the turn ends.
	Live bool
	// Message is the event number of the message that began the turn, Steered that of the newest message that
	// joined it.
	Message, Steered int64
	// Answers is the number of the session's own agent's answers in the turn. Told is the sum of the usage that the
	// events of these answers and of its child agents' answers report.
	Answers int
	Told    holdfast.Usage
	// Failed is the usage of the turn's failed model calls.
	Failed holdfast.Usage
	// Brokered sums up the model calls that an agent in the box made through the broker.
	Brokered Brokered
	// Parked is the time until which the turn waits for its model provider; zero once it continued.
	Parked time.Time
	// Waits are the waits that are over or have a known end. Questions are the open questions, with
	// the time when each was asked.
	Waits     []Wait
	Questions []Question
}

// Brokered sums up model calls that went through the server's broker; each of them has its own event. Answers
// and Usage count only the successful calls.
type Brokered struct {
	Any     bool
	Answers int
	Usage   holdfast.Usage
}

// Wait is a span of time in which a turn only waited, for a person or its provider.
type Wait struct{ From, Until time.Time }

// Question is an open question to a person.
type Question struct {
	holdfast.Approval
	Asked time.Time
}

// noticeParked is the code of the notice that a turn waits for its provider.
const noticeParked = "model.parked"
