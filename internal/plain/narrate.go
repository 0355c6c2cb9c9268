package plain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/conversation"
)

// How much of a tool call is shown where no decision depends on it: lines of a change, lines of a
// command's output, and characters of a line. A notice may be longer, because its end says what to do.
const (
	shownChange = 12
	shownOutput = 6
	shownWidth  = 200
	shownNotice = 1000
)

// Detail is how much of a turn a Narrator shows.
type Detail int

// The levels of detail.
const (
	// Normal shows messages and tool calls, with the last lines of their output.
	Normal Detail = iota
	// Quiet shows the assistant's text, questions, and how a turn failed.
	Quiet
	// Verbose shows everything: complete changes, output and thinking.
	Verbose
)

// Narrator turns the events of a session into lines for people. Its zero value is ready to use.
type Narrator struct {
	// Live is true to show the assistant's text in pieces, as deltas arrive.
	Live bool
	// Asks is true if the program itself asks the reader, so that the Narrator leaves questions out.
	Asks   bool
	Detail Detail
	// Double, if not nil, is called once, after the first answer, with the name of the answer's model. It returns
	// lines that say that the model is the test double.
	Double func(model string) []Line

	shown string            // the part of the next message that was shown from deltas already
	tools map[string]string // the names of tools, by the id of the tool use
}

// Tool returns the name of the tool of a tool use, or "a tool" if it is unknown.
func (n *Narrator) Tool(use string) string { return cmp.Or(n.tools[use], "a tool") }

// Event returns an event as lines, none for an event that is not shown. A damaged event gives no
// lines; the command holdfast session events shows it.
func (n *Narrator) Event(ev holdfast.Event) ([]Line, error) {
	if ev.Type == holdfast.EventDamaged {
		return nil, nil
	}
	step, err := conversation.Of(ev)
	if err != nil {
		return nil, err
	}
	switch s := step.(type) {
	case *conversation.Piece:
		if !n.Live || s.Thinking {
			return nil, nil
		}
		n.shown += s.Delta.Text
		return []Line{{Answer, Prose(s.Delta.Text)}}, nil
	case *conversation.Answer:
		return n.message(s.AssistantMessage), nil
	case *conversation.Request:
		return n.requested(s.ToolRequested), nil
	case *conversation.Asked:
		return n.asked(s.Question), nil
	case *conversation.Noticed:
		return n.noticed(s.Notice), nil
	}
	if n.Detail == Quiet {
		return nil, nil
	}
	if step == nil {
		return n.around(ev)
	}
	return n.other(step), nil
}

// message returns a finished message as lines, without the part that deltas have shown already.
func (n *Narrator) message(m holdfast.AssistantMessage) (out []Line) {
	full := m.Text()
	rest, ok := strings.CutPrefix(full, n.shown)
	if !ok { // the text shown so far belongs to an answer that the model did not finish
		out = append(out, Line{Kind: Break})
		rest = full
	}
	n.shown = ""
	if rest != "" {
		if n.Live {
			rest = Prose(rest)
		}
		out = append(out, Line{Answer, rest})
	}
	out = append(out, Line{Kind: Break})
	if n.Double != nil {
		out = append(out, n.Double(m.Model)...)
		n.Double = nil
	}
	return out
}

// other returns lines for results of calls, thinking, answers to questions, boxes, rewinds and resumes.
func (n *Narrator) other(step conversation.Step) []Line {
	switch s := step.(type) {
	case *conversation.Outcome:
		switch s.How {
		case conversation.Denied:
			return []Line{Notef("✗ %s denied by %s: %s", n.Tool(s.ToolUseID), s.By, s.Text)}
		case conversation.Lost:
			return []Line{Notef("? %s: outcome unknown: %s", n.Tool(s.ToolUseID), s.Text)}
		}
		return n.finished(*s.Finished)
	case *conversation.Thought:
		return n.thought(s.Thinking)
	case *conversation.Settled:
		return answered(s.ApprovalAnswered)
	case *conversation.BoxEnded:
		return []Line{Notef("%s: %s", s.How, s.Reason)}
	case *conversation.Rewound:
		return []Line{Notef("went back to event %d; files %s", s.Rewound.Seq, s.Files)}
	case *conversation.Resumed:
		return []Line{Notef("resumed: %s", Receipt(s.Receipt))}
	}
	return nil
}

func (n *Narrator) noticed(d holdfast.Notice) []Line {
	if d.Code == holdfast.NoticeVoid {
		n.shown = ""
	}
	if n.Detail == Quiet {
		return nil
	}
	return []Line{{Note, Cut(OneLine("! "+d.Text), shownNotice)}}
}

// around returns lines for events outside of the conversation: waiting in a queue, a box started, or a failed snapshot.
func (n *Narrator) around(ev holdfast.Event) ([]Line, error) {
	note := func(format string, args ...any) []Line { return []Line{Notef(format, args...)} }
	switch ev.Type {
	case holdfast.EventTurnQueued:
		return told(ev, func(d holdfast.TurnQueuedData) []Line { return note("queued, position %d", d.Position) })
	case holdfast.EventBoxQueued:
		return told(ev, func(d holdfast.BoxQueued) []Line { return note("waiting for a box, position %d", d.Position) })
	case holdfast.EventBoxStarted:
		return told(ev, func(d holdfast.BoxStarted) []Line {
			return note("box started in %.0f ms (%s)", d.DurationMS, d.Driver)
		})
	case holdfast.EventSnapshotFailed:
		return told(ev, func(d holdfast.Failure) []Line {
			of := "the files as they are now have"
			if ev.Turn != "" {
				of = "the files of this turn have"
			}
			out := note("! %s no checkpoint: %s", of, d.Message)
			if d.Hint != "" {
				out = append(out, Line{Hint, "hint: " + OneLine(d.Hint)})
			}
			return out
		})
	}
	return nil, nil
}

// told decodes the payload of an event and returns the lines that tell makes of it.
func told[T any](ev holdfast.Event, tell func(T) []Line) ([]Line, error) {
	var d T
	if err := ev.Decode(&d); err != nil {
		return nil, err
	}
	return tell(d), nil
}

// requested returns lines for a tool call that the model requested, and remembers the tool's name.
func (n *Narrator) requested(d holdfast.ToolRequested) []Line {
	if n.tools == nil {
		n.tools = map[string]string{}
	}
	n.tools[d.ToolUseID] = d.Name
	if n.Detail == Quiet {
		return nil
	}
	all := Call(d.Name, d.Input)
	out := []Line{Notef("→ %s", all[0].Text)}
	below := all[1:]
	shown := below[:min(len(below), shownChange)]
	if n.Detail == Verbose {
		out[0].Text, shown = "→ "+all[0].Text, below
	}
	for _, l := range shown {
		out = append(out, n.short(l))
	}
	if more := len(below) - len(shown); more > 0 {
		out = append(out, Line{Context, "… " + Count(more, "more line", "more lines")})
	}
	return out
}

func (n *Narrator) short(l Line) Line {
	if n.Detail != Verbose {
		l.Text = Cut(l.Text, shownWidth)
	}
	return l
}

// finished returns lines for the end of a tool call, with the last output of a command or the error
// of a tool.
func (n *Narrator) finished(d holdfast.ToolFinished) []Line {
	name := n.tools[d.ToolUseID]
	outcome := string(d.Outcome)
	if d.ExitCode != nil && *d.ExitCode != 0 {
		outcome = fmt.Sprintf("%s %d", outcome, *d.ExitCode)
	}
	out := []Line{Notef("← %s %s, %s", Cut(OneLine(n.Tool(d.ToolUseID)), 100), outcome, Lasted(d.DurationMS))}
	// The results of file tools are long and in the workspace anyway.
	known := d.Outcome == holdfast.ExitOK && slices.Contains([]string{"Read", "Write", "Edit", "Glob", "Grep", "TodoWrite"}, name)
	if known && n.Detail != Verbose || strings.TrimSpace(d.Content) == "" {
		return out
	}
	lines := slices.Collect(strings.Lines(strings.TrimRight(d.Content, "\n")))
	if name != "Bash" && d.IsError && n.Detail != Verbose {
		lines = lines[:1]
	}
	if more := len(lines) - shownOutput; more > 0 && n.Detail != Verbose {
		out = append(out, Line{Context, "… " + Count(more, "line before", "lines before")})
		lines = lines[more:]
	}
	for _, l := range lines {
		out = append(out, n.short(Line{Context, OneLine(strings.TrimSuffix(l, "\n"))}))
	}
	return out
}

// thought returns the model's thinking as lines, only at the level Verbose.
func (n *Narrator) thought(d holdfast.Thinking) (out []Line) {
	if n.Detail != Verbose || d.Redacted {
		return nil
	}
	for l := range strings.Lines(strings.TrimRight(d.Text, "\n")) {
		out = append(out, Line{Thought, OneLine(strings.TrimSuffix(l, "\n"))})
	}
	return out
}

// asked returns lines for a question about a tool call, with the commands that answer it.
func (n *Narrator) asked(a holdfast.Approval) []Line {
	if n.Asks {
		return nil
	}
	out := append([]Line{Notef("⏸ %s waits for an answer", a.Tool)}, Question(a, MaxAsked)...)
	return append(out, Line{Note, "  holdfast approvals allow " + OneLine(string(a.ID))},
		Line{Note, "  holdfast approvals deny " + OneLine(string(a.ID)) + " --reason TEXT"})
}

func answered(a holdfast.ApprovalAnswered) []Line {
	what := string(a.State)
	if a.By != "" {
		what += " by " + a.By
	}
	if len(a.Granted) > 0 {
		what += fmt.Sprintf("; from now on in this %s: %s", a.Scope, strings.Join(a.Granted, ", "))
	}
	return []Line{Notef("▶ %s", what)}
}

// End returns lines for a turn that failed or was interrupted, none for one that completed.
func (n *Narrator) End(ev holdfast.Event) ([]Line, error) {
	n.shown = ""
	if ev.Type == holdfast.EventTurnCompleted {
		return nil, nil
	}
	return told(ev, func(d holdfast.TurnEnded) []Line {
		out := []Line{{Trouble, "holdfast: " + OneLine(conversation.EndText(ev.Type, d.Message))}}
		if d.Hint != "" {
			out = append(out, Line{Hint, "hint: " + OneLine(d.Hint)})
		}
		return out
	})
}

// Lasted returns a duration, given in milliseconds, as text for people.
func Lasted(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	switch {
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}
