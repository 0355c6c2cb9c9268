package chat

import (
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// Live is what happens at the moment: what a screen shows below the conversation.
type Live struct {
	// Text is the answer so far, Thinking the thought so far.
	Text, Thinking string
	// Tools run, in the order they began.
	Tools []*Tool
	// Outbox are messages of ours that are not in the conversation yet.
	Outbox []Outgoing

	away  bool // the server is
	began time.Time
	usage holdfast.Usage // of the running turn so far
	known int64          // the last event that the session's numbers count
	now   func() time.Time
}

// Tool is a tool that runs.
type Tool struct {
	Use     string
	Title   string
	Began   time.Time
	Started bool
	// Tail is the end of what it printed.
	Tail string

	strip plain.Stripper
}

// Outgoing is a message that is on its way or waits for its turn.
type Outgoing struct {
	Text string
	Turn holdfast.TurnID // empty until the server has it
}

// How much is kept of what comes in pieces, in bytes.
const (
	tailMost = 8 << 10
	textMost = 1 << 20
)

func newLive() Live { return Live{now: time.Now} }

// event follows the turn that runs.
func (l *Live) event(ev holdfast.Event) error {
	switch ev.Type {
	case holdfast.EventTurnStarted:
		l.reset()
		l.began = l.when(ev.Time)
	case holdfast.EventTurnCompleted, holdfast.EventTurnFailed, holdfast.EventTurnInterrupted:
		l.reset()
		l.gone(ev.Turn, "")
	case holdfast.DeltaText:
		return taken(ev, func(d holdfast.TextDelta) { l.Text = grown(l.Text, d) })
	case holdfast.DeltaThinking:
		return taken(ev, func(d holdfast.TextDelta) { l.Thinking = grown(l.Thinking, d) })
	case holdfast.DeltaToolOutput:
		return taken(ev, l.output)
	case holdfast.EventThinking:
		l.Thinking = ""
	case holdfast.EventMessageAssistant:
		return taken(ev, func(m holdfast.AssistantMessage) {
			l.Text, l.Thinking = "", ""
			if ev.Seq > l.known {
				l.usage = l.usage.Add(m.Usage)
			}
		})
	case holdfast.EventMessageUser:
		return taken(ev, func(m holdfast.UserMessage) { l.gone(ev.Turn, m.Text()) })
	case holdfast.EventTurnQueued:
		return taken(ev, func(d holdfast.TurnQueuedData) { l.queued(ev.Turn, holdfast.UserMessage{Parts: d.Parts}.Text()) })
	case holdfast.EventNotice:
		return taken(ev, func(n holdfast.Notice) {
			if n.Code == holdfast.NoticeVoid {
				l.Text, l.Thinking = "", ""
			}
		})
	}
	return l.tool(ev)
}

// tool follows the tools.
func (l *Live) tool(ev holdfast.Event) error {
	switch ev.Type {
	case holdfast.EventToolRequested:
		return taken(ev, func(d holdfast.ToolRequested) {
			l.Tools = append(l.Tools, &Tool{Use: d.ToolUseID, Title: plain.Call(d.Name, d.Input)[0].Text, Began: l.when(ev.Time)})
		})
	case holdfast.EventToolStarted:
		return taken(ev, func(d holdfast.ToolStarted) {
			if t := l.find(d.ToolUseID); t != nil {
				t.Started, t.Began = true, l.when(ev.Time)
			}
		})
	case holdfast.EventToolFinished:
		return taken(ev, func(d holdfast.ToolFinished) { l.over(d.ToolUseID) })
	case holdfast.EventToolDenied:
		return taken(ev, func(d holdfast.ToolDecision) { l.over(d.ToolUseID) })
	case holdfast.EventToolUnknown:
		return taken(ev, func(d holdfast.ToolUnknown) { l.over(d.ToolUseID) })
	}
	return nil
}

func taken[T any](ev holdfast.Event, take func(T)) error {
	var d T
	if err := ev.Decode(&d); err != nil {
		return err
	}
	take(d)
	return nil
}

// grown is a text with its next piece. A reader that missed the beginning has what is
// left of it.
func grown(have string, d holdfast.TextDelta) string {
	if d.At == 0 {
		have = ""
	}
	have += d.Text
	if cut := len(have) - textMost; cut > 0 {
		have = strings.ToValidUTF8(have[cut:], "")
	}
	return have
}

func (l *Live) output(d holdfast.ToolOutput) {
	t := l.find(d.ToolUseID)
	if t == nil {
		return
	}
	t.Tail += t.strip.Clean(d.Text)
	if cut := len(t.Tail) - tailMost; cut > 0 {
		t.Tail = strings.ToValidUTF8(t.Tail[cut:], "")
	}
}

func (l *Live) find(use string) *Tool {
	if i := slices.IndexFunc(l.Tools, func(t *Tool) bool { return t.Use == use }); i >= 0 {
		return l.Tools[i]
	}
	return nil
}

func (l *Live) over(use string) {
	l.Tools = slices.DeleteFunc(l.Tools, func(t *Tool) bool { return t.Use == use })
}

// reset forgets the turn.
func (l *Live) reset() { l.Text, l.Thinking, l.Tools = "", "", nil }

// settle forgets what the running turn used up: the session counts it now.
func (l *Live) settle(upto int64) { l.usage, l.known = holdfast.Usage{}, upto }

// when is the time of an event by the clock of this machine.
func (l *Live) when(at time.Time) time.Time {
	now := l.now()
	const late = 5 * time.Second
	if past := now.Sub(at); past > late && past < 30*24*time.Hour {
		return at
	}
	return now
}

func (l *Live) sending(text string) { l.Outbox = append(l.Outbox, Outgoing{Text: text}) }

// confirmed takes that the server has the oldest message that it did not have.
func (l *Live) confirmed(r Sent) {
	for i := range l.Outbox {
		if l.Outbox[i].Turn == "" && l.Outbox[i].Text == r.Text {
			l.Outbox[i].Turn = r.Turn
			return
		}
	}
}

// queued takes that a message waits for its turn, whoever sent it.
func (l *Live) queued(turn holdfast.TurnID, text string) {
	if slices.ContainsFunc(l.Outbox, func(o Outgoing) bool { return o.Turn == turn }) {
		return
	}
	l.confirmed(Sent{Text: text, Turn: turn})
	if !slices.ContainsFunc(l.Outbox, func(o Outgoing) bool { return o.Turn == turn }) {
		l.Outbox = append(l.Outbox, Outgoing{text, turn})
	}
}

// unsent takes that a message will not be sent.
func (l *Live) unsent(text string) { l.gone("", text) }

// gone takes a message out of the outbox: that of a turn, or one that has no turn yet and
// reads like it.
func (l *Live) gone(turn holdfast.TurnID, text string) {
	i := slices.IndexFunc(l.Outbox, func(o Outgoing) bool { return turn != "" && o.Turn == turn })
	if i < 0 && text != "" {
		i = slices.IndexFunc(l.Outbox, func(o Outgoing) bool { return o.Turn == "" && o.Text == text })
	}
	if i >= 0 {
		l.Outbox = slices.Delete(l.Outbox, i, i+1)
	}
}
