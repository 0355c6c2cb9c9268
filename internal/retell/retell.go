// Package retell describes to an agent in words what happened in a session: it renders the log as
// one bounded block of text for the front of the next message.
//
// The runtimes whose agents keep their own conversation, and bench, import it; it imports the vocabulary,
// hook and conversation. Invariant: whatever the texts of users, models, tools and hooks contain, the
// block ends only at its closing tag, has one line [USER]: for each message of the user that it
// includes, and is no longer than its budget.
package retell

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/conversation"
)

// Options select the part of a conversation to render, and bound its size.
type Options struct {
	// After and Before are the exclusive bounds of the log entries: After is the last one that the
	// agent knows already, Before the message that it is about to get (0: no bound).
	After, Before int64
	// Tokens is the budget of the block, at four bytes per token; 0 means 32,000, the minimum is 500.
	Tokens int
}

// Told is the rendered block with facts about its content.
type Told struct {
	// Block is the text; empty if there is nothing to describe.
	Block string
	// Turns is the number of completed turns that the block describes, Completed the number of all completed turns
	// between the bounds of Options.
	Turns, Completed int64
	// Truncated is true if messages were left out or cut; the block marks the places.
	Truncated bool
}

const (
	opening = "<conversation_history>\n"
	closing = "</conversation_history>"

	bytesPerToken = 4
	defaultTokens = 32_000
	leastTokens   = 500
	// markBytes is reserved for the line with the number of messages left out.
	markBytes = 80
	// inputBytes and outputBytes limit the input and the result of each tool call in the block.
	inputBytes  = 300
	outputBytes = 600
)

const (
	roleUser      = "USER"
	roleAssistant = "ASSISTANT"
	roleTool      = "TOOL"
	roleSystem    = "SYSTEM"
)

// Prompt returns the text to send to an agent: the block, an empty line, the message.
func (t Told) Prompt(message string) string {
	if t.Block == "" {
		return message
	}
	return t.Block + "\n\n" + message
}

// Tell renders a conversation as a block.
func Tell(c *conversation.Conversation, o Options) Told {
	tokens := o.Tokens
	if tokens == 0 {
		tokens = defaultTokens
	}
	f := &folding{budget: max(tokens, leastTokens) * bytesPerToken}
	if c.Turn.Live {
		f.live = c.Turn.ID
	}
	for _, i := range c.Items {
		if seq, _ := i.At(); seq > o.After && (o.Before == 0 || seq < o.Before) {
			f.tell(i)
		}
	}
	return f.told()
}

// Session renders a session's conversation as a block.
func Session(ctx context.Context, s Teller, o Options) (told Told, err error) {
	err = s.Conversation(ctx, func(c *conversation.Conversation) error {
		told = Tell(c, o)
		return nil
	})
	return told, err
}

// Teller gives access to a session's conversation. runtime.Host implements it.
type Teller interface {
	Conversation(ctx context.Context, use func(*conversation.Conversation) error) error
}

// entry is a message of the block.
type entry struct {
	seq  int64
	role string
	text string
	// answer is the result of a tool call.
	answer string
	// begins is true for the first message of a turn, done if that turn completed.
	begins, done bool
}

func (e *entry) size() int { return len(e.text) + len(e.answer) + len(e.role) + 5 }

// folding collects the entries between the bounds: the first one, and as many of the newest as the
// budget may hold.
type folding struct {
	budget int
	first  *entry
	tail   []*entry
	bytes  int
	left   int
	cut    bool
	// live is the id of the running turn, for which the block is made.
	live holdfast.TurnID

	turn      holdfast.TurnID
	prompt    *entry
	completed int64
}

func (f *folding) add(e *entry, most int) {
	e.text = f.fit(e.text, most)
	if f.first == nil {
		f.first = e
		return
	}
	f.tail = append(f.tail, e)
	f.bytes += e.size()
	for f.bytes > 2*f.budget && len(f.tail) > 1 {
		f.drop()
	}
}

func (f *folding) drop() {
	f.bytes -= f.tail[0].size()
	f.tail[0] = nil
	f.tail = f.tail[1:]
	f.left++
}

// message returns the largest size of a single message in the block, in bytes.
func (f *folding) message() int { return f.budget / 4 }

// fit returns a text made inert and shortened to at most most bytes.
func (f *folding) fit(text string, most int) string {
	rough := clip.Middle(text, most)
	short := inert(rough)
	safe := clip.Middle(short, most)
	f.cut = f.cut || len(rough) != len(text) || len(safe) != len(short)
	return safe
}

func (f *folding) tell(item conversation.Item) {
	switch i := item.(type) {
	case *conversation.Message:
		e := &entry{seq: i.Seq, role: roleUser, text: i.Text, begins: !i.Steer}
		if e.begins {
			f.turn, f.prompt = i.Turn, e
		}
		f.add(e, f.message())
	case *conversation.Answer:
		if text := i.Text(); text != "" {
			f.add(&entry{seq: i.Seq, role: roleAssistant, text: text}, f.message())
		}
	case *conversation.Use:
		e := &entry{seq: i.Seq, role: roleTool, text: i.Name + " " + string(i.Input)}
		f.answered(e, i)
		f.add(e, inputBytes)
	case *conversation.Ended:
		f.ended(i)
	case *conversation.Aside:
		f.aside(i)
	}
}

// answered adds the result of a tool call to its entry. A shortened result does not count as
// truncation: no block holds more than outputBytes of a result.
func (f *folding) answered(e *entry, u *conversation.Use) {
	how, said := "", u.Text
	switch {
	case u.State != conversation.Answered && u.Turn == f.live:
		return
	case u.State != conversation.Answered:
		how = "its turn ended before it did"
	case u.Result == conversation.Denied:
		how = "denied"
	case u.Result == conversation.Lost:
		how = "nobody knows whether it ran"
	case u.IsError:
		how = "error"
	default:
		how = "ok"
	}
	e.answer = " → " + how
	if said = strings.TrimSpace(said); said != "" {
		cut := f.cut
		e.answer += ": " + f.fit(said, outputBytes)
		f.cut = cut
	}
}

func (f *folding) ended(e *conversation.Ended) {
	mine := f.prompt != nil && f.turn == e.Turn
	switch e.How {
	case holdfast.EventTurnCompleted:
		if mine {
			f.prompt.done = true
			f.completed++
		}
	case holdfast.EventTurnInterrupted:
		f.note(e.Place, "The user interrupted this turn.")
	default:
		f.note(e.Place, "This turn failed: "+holdfast.Quote(e.Message)+".")
	}
	if mine {
		f.prompt = nil
	}
}

func (f *folding) note(at conversation.Place, text string) {
	f.add(&entry{seq: at.Seq, role: roleSystem, text: text}, f.message())
}

// aside adds events besides the conversation that an agent must know of.
func (f *folding) aside(a *conversation.Aside) {
	switch {
	case a.Hook != nil:
		f.hook(a.Place, *a.Hook)
	case a.Box != nil:
		f.note(a.Place, fmt.Sprintf("The sandbox ended (%s), and with it these background processes: %s.", a.Box.Reason, clip.Quoted(a.Box.Processes)))
	case a.AtRisk != "":
		f.note(a.Place, a.AtRisk)
	case a.Lost != nil:
		f.note(a.Place, "The session was resumed. This did not survive: "+clip.Quoted(a.Lost)+".")
	}
}

// hook adds a hook's texts for the model. If the hook withheld a message of the user, the text of that
// message is replaced.
func (f *folding) hook(at conversation.Place, ran holdfast.HookRan) {
	if e := f.find(ran.MessageSeq); e != nil && hook.Withholds(ran) {
		was := e.size()
		e.text = "(a hook withheld what the user said here)"
		if e != f.first {
			f.bytes += e.size() - was
		}
	}
	for _, t := range hook.Texts(ran) {
		t = strings.TrimSuffix(strings.TrimPrefix(t, "<system-reminder>"), "</system-reminder>")
		f.note(at, t)
	}
}

// find returns the user's message with a sequence number; nil if the block does not include it.
func (f *folding) find(seq int64) *entry {
	if seq == 0 {
		return nil
	}
	if f.first != nil && f.first.seq == seq && f.first.role == roleUser {
		return f.first
	}
	for i := len(f.tail) - 1; i >= 0 && f.tail[i].seq >= seq; i-- {
		if f.tail[i].seq == seq && f.tail[i].role == roleUser {
			return f.tail[i]
		}
	}
	return nil
}

// told returns the block: the first message, and then as many of the newest as fit.
func (f *folding) told() Told {
	t := Told{Completed: f.completed, Truncated: f.cut}
	if f.first == nil {
		return t
	}
	room := f.budget - len(opening) - len(closing) - f.first.size() - markBytes
	for f.bytes > room && len(f.tail) > 0 {
		f.drop()
	}
	var b strings.Builder
	b.WriteString(opening)
	write := func(e *entry) {
		fmt.Fprintf(&b, "[%s]: %s%s\n", e.role, e.text, e.answer)
		if e.begins && e.done {
			t.Turns++
		}
	}
	write(f.first)
	if f.left > 0 {
		t.Truncated = true
		write(&entry{role: roleSystem, text: fmt.Sprintf("%d messages are left out here.", f.left)})
	}
	for _, e := range f.tail {
		write(e)
	}
	b.WriteString(closing)
	t.Block = b.String()
	return t
}
