package chat

import (
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// Live is the state of the running turn: what a screen shows below the conversation.
type Live struct {
	// Text is the answer, Thinking the thought, as far as it has arrived.
	Text, Thinking string
	// Tools are the tool calls that wait or run, in the order of their requests.
	Tools []*Tool
	// Outbox are messages that are not in the conversation yet: those of this chat, and queued ones
	// of others.
	Outbox []Outgoing

	away  bool // true while the server is away
	began time.Time
	usage holdfast.Usage // usage of the running turn so far
	known int64          // number of the last event that Session.Spent includes
	now   func() time.Time
}

// Tool is a tool call that waits or runs.
type Tool struct {
	Use     string
	Title   string
	Began   time.Time
	Started bool
	// Tail is the end of the output that the tool has printed.
	Tail string

	strip plain.Stripper
}

// Outgoing is a message on its way to the server, or one that waits there for its turn.
type Outgoing struct {
	Text string
	Turn holdfast.TurnID // empty until the server has accepted the message
}

// The most bytes that are kept while they arrive: tailMost of a tool's output, textMost of an answer or a thought.
const (
	tailMost = 8 << 10
	textMost = 1 << 20
)

func newLive() Live { return Live{now: time.Now} }

// event updates the state from an event of the log.
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

// tool updates Tools from an event of a tool call.
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

// grown returns a streamed text with its next piece added, cut at the front to textMost bytes. A
// piece at offset 0 starts a new text.
func grown(have string, d holdfast.TextDelta) string {
	if d.At == 0 {
		have = ""
	}
	return clip.Tail(have+d.Text, textMost)
}

func (l *Live) output(d holdfast.ToolOutput) {
	t := l.find(d.ToolUseID)
	if t == nil {
		return
	}
	t.Tail = clip.Tail(t.Tail+t.strip.Clean(d.Text), tailMost)
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

// reset clears the answer, the thought and the tools of the turn.
func (l *Live) reset() { l.Text, l.Thinking, l.Tools = "", "", nil }

// settle clears the usage of the running turn, because the session's numbers include it now up
// to event upto.
func (l *Live) settle(upto int64) { l.usage, l.known = holdfast.Usage{}, upto }

// when returns the time of an event for the clocks on the screen: the event's own time if it is 5 s to 30 days
// ago, else the present time, because the server's clock may differ.
func (l *Live) when(at time.Time) time.Time {
	now := l.now()
	const late = 5 * time.Second
	if past := now.Sub(at); past > late && past < 30*24*time.Hour {
		return at
	}
	return now
}

func (l *Live) sending(text string) { l.Outbox = append(l.Outbox, Outgoing{Text: text}) }

// confirmed records the turn that the server confirmed for a message: in the oldest message of the
// outbox that has the same text and no turn yet.
func (l *Live) confirmed(r Sent) {
	for i := range l.Outbox {
		if l.Outbox[i].Turn == "" && l.Outbox[i].Text == r.Text {
			l.Outbox[i].Turn = r.Turn
			return
		}
	}
}

// queued records that a message waits for its turn to start, whoever sent the message.
func (l *Live) queued(turn holdfast.TurnID, text string) {
	if slices.ContainsFunc(l.Outbox, func(o Outgoing) bool { return o.Turn == turn }) {
		return
	}
	l.confirmed(Sent{Text: text, Turn: turn})
	if !slices.ContainsFunc(l.Outbox, func(o Outgoing) bool { return o.Turn == turn }) {
		l.Outbox = append(l.Outbox, Outgoing{text, turn})
	}
}

// unsent removes from the outbox the oldest message with this text that has no turn: it will not be sent.
func (l *Live) unsent(text string) { l.gone("", text) }

// gone removes a message from the outbox: that of the turn, or else the oldest one with this
// text that has no turn yet.
func (l *Live) gone(turn holdfast.TurnID, text string) {
	i := slices.IndexFunc(l.Outbox, func(o Outgoing) bool { return turn != "" && o.Turn == turn })
	if i < 0 && text != "" {
		i = slices.IndexFunc(l.Outbox, func(o Outgoing) bool { return o.Turn == "" && o.Text == text })
	}
	if i >= 0 {
		l.Outbox = slices.Delete(l.Outbox, i, i+1)
	}
}
