// Package retell tells an agent in words what happened in a session: the log folded
// into one bounded block of text that goes in front of the next message.
//
// The runtimes whose agents keep a conversation of their own import it; it imports
// the vocabulary and hook. Invariant: whatever users, models, tools and hooks said,
// the block ends where it says that it ends, has one line [USER]: for each message
// of the user, and is no longer than its budget.
package retell

import (
	"fmt"
	"iter"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
)

// Options say what to tell.
type Options struct {
	// After and Before bound the log entries, both exclusive: what the agent knows
	// already, and the message that it is about to get. Before 0 is no bound.
	After, Before int64
	// Tokens bound the block at four bytes each; 0 is 32,000, the least is 500.
	Tokens int
}

// Told is a block and what is in it.
type Told struct {
	// Block is empty when there is nothing to tell.
	Block string
	// Turns is how many completed turns it tells, of Completed between the bounds.
	Turns, Completed int64
	// Truncated: messages were left out or cut; the block marks where.
	Truncated bool
}

const (
	opening = "<conversation_history>\n"
	closing = "</conversation_history>"

	bytesPerToken = 4
	defaultTokens = 32_000
	leastTokens   = 500
	// markBytes is room for the line that says how much was left out.
	markBytes = 80
	// inputBytes and outputBytes bound what is told of a tool call.
	inputBytes  = 300
	outputBytes = 600
)

const (
	roleUser      = "USER"
	roleAssistant = "ASSISTANT"
	roleTool      = "TOOL"
	roleSystem    = "SYSTEM"
)

// Prompt is what an agent gets: the block, an empty line, the message.
func (t Told) Prompt(message string) string {
	if t.Block == "" {
		return message
	}
	return t.Block + "\n\n" + message
}

// Tell folds events, in log order, into a block. Its memory is bounded by the
// budget, however long the log is.
func Tell(events iter.Seq2[holdfast.Event, error], o Options) (Told, error) {
	tokens := o.Tokens
	if tokens == 0 {
		tokens = defaultTokens
	}
	f := &folding{budget: max(tokens, leastTokens) * bytesPerToken, uses: map[string]*entry{}}
	for ev, err := range events {
		if err != nil {
			return Told{}, err
		}
		if ev.Seq <= o.After {
			continue
		}
		if o.Before > 0 && ev.Seq >= o.Before {
			break
		}
		if err := f.apply(ev); err != nil {
			return Told{}, err
		}
	}
	return f.told(), nil
}

// entry is a message of the block.
type entry struct {
	seq  int64
	role string
	text string
	// answer is how a tool call ended.
	answer string
	// begins: it is the first message of a turn, which completed if done.
	begins, done bool
}

func (e *entry) size() int { return len(e.text) + len(e.answer) + len(e.role) + 5 }

// folding is the log between the bounds: its first message, and as many of the
// newest as the budget may hold.
type folding struct {
	budget int
	first  *entry
	tail   []*entry
	bytes  int
	left   int
	cut    bool

	turn      holdfast.TurnID
	prompt    *entry
	completed int64
	uses      map[string]*entry
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

// message is how long a single message may be.
func (f *folding) message() int { return f.budget / 4 }

// fit makes a text inert and no longer than most.
func (f *folding) fit(text string, most int) string {
	rough := shorten(text, most)
	short := inert(rough)
	safe := shorten(short, most)
	f.cut = f.cut || len(rough) != len(text) || len(safe) != len(short)
	return safe
}

func (f *folding) apply(ev holdfast.Event) error {
	switch ev.Type {
	case holdfast.EventMessageUser:
		return decode(ev, func(m *holdfast.UserMessage) { f.user(ev, *m) })
	case holdfast.EventMessageAssistant:
		return decode(ev, func(m *holdfast.AssistantMessage) { f.assistant(ev, *m) })
	case holdfast.EventToolRequested:
		return decode(ev, func(r *holdfast.ToolRequested) { f.requested(ev, *r) })
	case holdfast.EventToolDenied:
		return decode(ev, func(d *holdfast.ToolDecision) { f.answered(d.ToolUseID, "denied", d.Reason) })
	case holdfast.EventToolFinished:
		return decode(ev, func(d *holdfast.ToolFinished) {
			how := "ok"
			if d.IsError {
				how = "error"
			}
			f.answered(d.ToolUseID, how, d.Content)
		})
	case holdfast.EventToolUnknown:
		return decode(ev, func(d *holdfast.ToolUnknown) { f.answered(d.ToolUseID, "nobody knows whether it ran", d.Reason) })
	case holdfast.EventTurnCompleted, holdfast.EventTurnFailed, holdfast.EventTurnInterrupted:
		return decode(ev, func(t *holdfast.TurnEnded) { f.ended(ev, *t) })
	default:
		return f.aside(ev)
	}
}

func decode[T any](ev holdfast.Event, to func(*T)) error {
	var p T
	if err := ev.Decode(&p); err != nil {
		return err
	}
	to(&p)
	return nil
}

func (f *folding) user(ev holdfast.Event, m holdfast.UserMessage) {
	e := &entry{seq: ev.Seq, role: roleUser, text: m.Text, begins: !m.Steer}
	if e.begins {
		f.turn, f.prompt = ev.Turn, e
	}
	f.add(e, f.message())
}

func (f *folding) assistant(ev holdfast.Event, m holdfast.AssistantMessage) {
	var text []string
	for _, p := range m.Parts {
		if p.Text != "" {
			text = append(text, p.Text)
		}
	}
	if len(text) > 0 {
		f.add(&entry{seq: ev.Seq, role: roleAssistant, text: strings.Join(text, "\n")}, f.message())
	}
}

func (f *folding) requested(ev holdfast.Event, r holdfast.ToolRequested) {
	e := &entry{seq: ev.Seq, role: roleTool, text: r.Name + " " + string(r.Input)}
	f.uses[r.ToolUseID] = e
	f.add(e, inputBytes)
}

// answered tells how a tool call ended.
func (f *folding) answered(use, how, said string) {
	e := f.uses[use]
	if e == nil {
		return
	}
	delete(f.uses, use)
	cut := f.cut
	before := len(e.answer)
	e.answer = " → " + how
	if said = strings.TrimSpace(said); said != "" {
		e.answer += ": " + f.fit(said, outputBytes)
	}
	// A call is always told in short: that is no loss to speak of.
	f.cut = cut
	if e != f.first {
		f.bytes += len(e.answer) - before
	}
}

func (f *folding) ended(ev holdfast.Event, t holdfast.TurnEnded) {
	for use := range f.uses {
		f.answered(use, "its turn ended before it did", "")
	}
	mine := f.prompt != nil && f.turn == ev.Turn
	switch ev.Type {
	case holdfast.EventTurnCompleted:
		if mine {
			f.prompt.done = true
			f.completed++
		}
	case holdfast.EventTurnInterrupted:
		f.note(ev, "The user interrupted this turn.")
	default:
		f.note(ev, "This turn failed: "+holdfast.Quote(t.Message)+".")
	}
	if mine {
		f.prompt = nil
	}
}

func (f *folding) note(ev holdfast.Event, text string) {
	f.add(&entry{seq: ev.Seq, role: roleSystem, text: text}, f.message())
}

// aside tells what an agent must know besides the conversation.
func (f *folding) aside(ev holdfast.Event) error {
	switch ev.Type {
	case holdfast.EventHookRan:
		return decode(ev, func(r *holdfast.HookRan) { f.hook(ev, *r) })
	case holdfast.EventBoxStopped, holdfast.EventBoxLost:
		return decode(ev, func(b *holdfast.BoxEnded) {
			if len(b.Processes) > 0 {
				f.note(ev, fmt.Sprintf("The sandbox ended (%s), and with it these background processes: %s.", b.Reason, quoted(b.Processes)))
			}
		})
	case holdfast.EventNotice:
		return decode(ev, func(n *holdfast.Notice) {
			if n.Code == holdfast.NoticeFilesAtRisk {
				f.note(ev, n.Text)
			}
		})
	case holdfast.EventSessionResumed:
		return decode(ev, func(r *holdfast.Receipt) {
			if len(r.Lost) > 0 {
				f.note(ev, "The session was resumed. This did not survive: "+quoted(r.Lost)+".")
			}
		})
	}
	return nil
}

// hook tells what a hook said to the model. What it withheld stays withheld.
func (f *folding) hook(ev holdfast.Event, ran holdfast.HookRan) {
	if e := f.find(ran.MessageSeq); e != nil && strings.HasPrefix(hook.Prompted("", ran), hook.Withheld) {
		was := e.size()
		e.text = "(a hook withheld what the user said here)"
		if e != f.first {
			f.bytes += e.size() - was
		}
	}
	for _, t := range hook.Texts(ran) {
		t = strings.TrimSuffix(strings.TrimPrefix(t, "<system-reminder>"), "</system-reminder>")
		f.note(ev, t)
	}
}

// find is the message with a sequence number, if it is still kept.
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

func quoted(values []string) string {
	const most = 20
	shown := make([]string, 0, most)
	for _, v := range values[:min(len(values), most)] {
		shown = append(shown, holdfast.Quote(v))
	}
	if len(values) > most {
		shown = append(shown, "…")
	}
	return strings.Join(shown, ", ")
}

// told is the block: the first message, and from there on the newest that fit.
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
