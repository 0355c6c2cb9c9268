// Package conversation folds a session's log into what was said and done: messages,
// answers, tool uses, what hooks and the box had to say, and what the newest turn used
// up and waits for. For readers that begin in the middle of a log, Of says what one event means;
// the fold is made of these steps.
//
// Whoever needs the log as a conversation imports it: the runtimes, the engine, the store's
// search index, the API, the servers of other protocols, the command line. It imports the vocabulary. Invariant: a Conversation
// depends on the events alone, so every reader of a log has the same one.
package conversation

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Conversation is a log up to an event. The zero value is the one of an empty log; one
// with a Seq begins after that event, and then knows nothing of what came before.
//
// A reader may set View, and must not change anything else. Not safe for concurrent use.
type Conversation struct {
	// Seq is the newest event that was read.
	Seq int64
	// Items are what was said and done, in the order of the log.
	Items []Item
	// Completed counts the turns that completed.
	Completed int64
	// Turn is the newest turn that started.
	Turn Turn
	// View is what a reader made of the items, kept for its next reading. Until then items are only
	// added, and a Use changes only before the next Answer, Ended, or Message that joins no turn
	// follows it. MoveHead, which removes items, also removes the View.
	View any

	// bytes is about what the items take.
	bytes int64
	// said is the newest message that joined no turn.
	said *Message
	// thinking waits for its answer.
	thinking []holdfast.Thinking
	// uses are those of the newest answer, and of the answers that it goes on from, until
	// something follows it.
	uses []*Use
	// loose are uses that no answer named.
	loose []*Use
	// late are decisions and intents on uses. Only one without a result needs them, so
	// they are decoded when somebody asks.
	late []holdfast.Event
}

// Item is a *Message, *Answer, *Use, *Begun, *Ended or *Aside.
type Item interface {
	// At is the number of the item's event, and the turn it belongs to.
	At() (seq int64, turn holdfast.TurnID)
}

// Place is where an item stands in the log.
type Place struct {
	Seq  int64
	Turn holdfast.TurnID
}

// At implements Item.
func (p Place) At() (int64, holdfast.TurnID) { return p.Seq, p.Turn }

// Message is what the user said. Steer marks one that joined a running turn.
type Message struct {
	Place
	Text  string
	Steer bool
}

// Answer is what the model said in one call, and what it asked for.
type Answer struct {
	Place
	holdfast.AssistantMessage
	// Thinking came with it; its parts say where.
	Thinking []holdfast.Thinking
	// Continues: calls of the answer before had no result yet, so this is the rest of it.
	Continues bool
	// Uses are the tool uses that its parts name, but those which the answer that it goes
	// on from has.
	Uses []*Use
}

// Text is what the model said, its parts by lines.
func (a *Answer) Text() string {
	var text []string
	for _, p := range a.Parts {
		if s := p.Shown(); s != "" {
			text = append(text, s)
		}
	}
	return strings.Join(text, "\n")
}

// State says how far a tool use got.
type State int

// The states in their order. Named: an answer has it, nothing else is in the log.
// Requested: not decided. Allowed: decided, not begun. Started: its intent is in the log,
// so it may have reached the box. Answered: its result is in the log.
const (
	Named State = iota
	Requested
	Allowed
	Started
	Answered
)

// Result says what answered a tool use.
type Result int

// The results. Lost: nobody knows whether it ran.
const (
	Finished Result = iota + 1
	Denied
	Lost
)

// String returns the outcome that a transcript shows.
func (r Result) String() string { return [...]string{"", "finished", "denied", "unknown"}[r] }

// Use is a tool use. As an item it stands where it was requested.
type Use struct {
	Place
	ID    string
	Name  string
	Input json.RawMessage
	State State
	// Rewritten is what the tool runs with instead of Input, where a decision said so.
	Rewritten json.RawMessage
	// Intent is the event of a use in state Started, Began its time.
	Intent holdfast.ToolStarted
	Began  time.Time
	// Result, Text and IsError are of a use in state Answered: what the tool said, or why
	// it was denied or is lost.
	Result  Result
	Text    string
	IsError bool
}

// Begun is a turn that started.
type Begun struct{ Place }

// Ended is a turn that ended.
type Ended struct {
	Place
	// How is the type of the event, Message why the turn failed or was interrupted.
	How     holdfast.EventType
	Message string
	// Completed counts the completed turns up to here.
	Completed int64
}

// Aside is what an agent must know besides what was said. One of the fields is set.
type Aside struct {
	Place
	// Hook is the run of a hook.
	Hook *holdfast.HookRan
	// AtRisk is the text of a notice that a power cut may have taken files.
	AtRisk string
	// Box ended, and processes with it.
	Box *holdfast.BoxEnded
	// Lost is what did not survive until the session was resumed.
	Lost []string

	size int
}

// Turn is what is known of the newest turn.
type Turn struct {
	ID holdfast.TurnID
	// Live: it has not ended.
	Live bool
	// Message is the one that began it, Steered the newest that joined it.
	Message, Steered int64
	// Answers count the answers, Told is the usage that they tell of.
	Answers int
	Told    holdfast.Usage
	// Failed is the usage of model calls without an answer.
	Failed holdfast.Usage
	// Brokered are the model calls that an agent in the box made.
	Brokered Brokered
	// Parked is until when it waits for its provider; zero once it went on.
	Parked time.Time
	// Waits are over, or will be at a known time; Questions are open, and when each was
	// asked.
	Waits     []Wait
	Questions []Question
}

// Brokered are model calls that went through the server's broker; each is in the log by
// itself. Answers and Usage are of those that were answered.
type Brokered struct {
	Any     bool
	Answers int
	Usage   holdfast.Usage
}

// Wait is a time in which a turn only waited.
type Wait struct{ From, Until time.Time }

// Question is one that waits for a person.
type Question struct {
	holdfast.Approval
	Asked time.Time
}

// The codes of the notices that a conversation knows, beside those of the vocabulary.
const noticeParked = "model.parked"

// MoveHead takes back what came after the end of a turn, or all with 0: the next event
// follows there. It fails with invalid where no turn ended.
func (c *Conversation) MoveHead(to int64) error {
	keep, completed := 0, int64(0)
	for i := len(c.Items) - 1; i >= 0 && to > 0; i-- {
		if e, ok := c.Items[i].(*Ended); ok && e.Seq == to {
			keep, completed = i+1, e.Completed
			break
		}
	}
	if keep == 0 && to != 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "conversation", "no turn ended at #%d", to).WithHint("use the end of a turn")
	}
	clear(c.Items[keep:])
	*c = Conversation{Seq: c.Seq, Items: c.Items[:keep], Completed: completed}
	for _, i := range c.Items {
		c.bytes += weight(i)
	}
	return nil
}
