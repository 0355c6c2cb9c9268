package acp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/sandbox"
)

// run is one Run: what it found, and what it holds.
type run struct {
	r *Runtime
	// ctx is the turn's, late that of what is done when it was cancelled.
	ctx, late context.Context
	t         runtime.Turn
	host      runtime.Host
	began     time.Time
	// torn: the log refused a record, so nothing more may be done.
	torn bool

	logged

	box *sandbox.Box
	a   *agent
	// others are states that change together with a, owed what is recorded of that.
	others []holdfast.AgentState
	owed   []journal.Draft
	c      *conn
	// at is the offset of the output up to which it was handled.
	at int64
	// user: the newest update was a part of a message of the user.
	user bool

	// before is the answer as the log has it, when the last of it comes with the end.
	before answerSoFar

	decided      chan verdict
	deciding     sync.WaitGroup
	deciders     context.Context
	stopDeciding context.CancelFunc
	warned       map[string]bool
	garbage      int
	unknowns     int
}

// logged is what the log says: the session's agents, how many turns completed, and
// of this turn the messages, what hooks said beside them, the open calls and the
// answer so far.
type logged struct {
	states    []holdfast.AgentState
	completed int64
	messages  []heard
	aside     []string
	open      []openCall
	steps     int
	text      string
	stop      string
	usage     holdfast.Usage
}

type answerSoFar struct {
	steps int
	text  string
}

// heard is a message of the user.
type heard struct {
	seq  int64
	text string
}

// openCall is a tool use of this turn that has no answer in the log.
type openCall struct {
	use     string
	started *holdfast.ToolStarted
}

// gather reads the log from where the state left off.
func (x *run) gather() error {
	ctx := x.late
	var err error
	if x.states, err = x.host.AgentStates(ctx); err != nil {
		return err
	}
	if s := x.current(); s != nil {
		if x.a, err = newAgent(*s); err != nil {
			return err
		}
	}
	var from int64
	err = x.host.Conversation(ctx, func(c *conversation.Conversation) error {
		x.completed = c.Completed
		if c.Turn.Live && c.Turn.ID == x.t.ID {
			from = c.Turn.Message
		}
		return nil
	})
	if err != nil {
		return err
	}
	if from == 0 {
		return holdfast.Errorf(holdfast.KindInternal, op, "turn %s is not the one under way in the log", holdfast.Quote(string(x.t.ID)))
	}
	for ev, err := range x.host.Log(ctx, from-1) {
		if err != nil {
			return err
		}
		if ev.Turn != x.t.ID {
			continue
		}
		if err := x.fold(ev); err != nil {
			return err
		}
	}
	return nil
}

// current is this runtime's state that the next turn goes on with.
func (x *run) current() *holdfast.AgentState {
	i := slices.IndexFunc(x.states, func(s holdfast.AgentState) bool {
		return s.Runtime == x.r.Name() && s.Health == holdfast.HealthCurrent
	})
	if i < 0 {
		return nil
	}
	return &x.states[i]
}

// fold takes in an event of this turn.
func (x *run) fold(ev holdfast.Event) error {
	if ev.Agent != "" {
		return nil
	}
	switch ev.Type {
	case holdfast.EventMessageUser:
		return decode(ev, func(m *holdfast.UserMessage) { x.messages = append(x.messages, heard{ev.Seq, m.Text()}) })
	case holdfast.EventHookRan:
		return decode(ev, func(ran *holdfast.HookRan) { x.hook(*ran) })
	case holdfast.EventNotice:
		return decode(ev, func(n *holdfast.Notice) {
			if n.Code == holdfast.NoticeFilesAtRisk {
				x.aside = append(x.aside, "<system-reminder>"+n.Text+"</system-reminder>")
			}
		})
	case holdfast.EventMessageAssistant:
		return decode(ev, func(m *holdfast.AssistantMessage) { x.spoke(*m) })
	case holdfast.EventToolRequested:
		return decode(ev, func(r *holdfast.ToolRequested) { x.open = append(x.open, openCall{use: r.ToolUseID}) })
	case holdfast.EventToolStarted:
		return decode(ev, func(s *holdfast.ToolStarted) {
			for i := range x.open {
				if x.open[i].use == s.ToolUseID {
					x.open[i].started = s
				}
			}
		})
	case holdfast.EventToolDenied, holdfast.EventToolFinished, holdfast.EventToolUnknown:
		return decode(ev, func(d *holdfast.ToolDecision) { x.closed(d.ToolUseID) })
	}
	return nil
}

func decode[T any](ev holdfast.Event, to func(*T)) error {
	var p T
	if err := ev.Decode(&p); err != nil {
		return err
	}
	to(&p)
	return nil
}

// hook puts what a hook said where the agent hears it: with the message it was
// about, or in front of the next.
func (x *run) hook(ran holdfast.HookRan) {
	for i := range x.messages {
		if x.messages[i].seq == ran.MessageSeq {
			x.messages[i].text = hook.Prompted(x.messages[i].text, ran)
			return
		}
	}
	x.aside = append(x.aside, hook.Texts(ran)...)
}

func (x *run) spoke(m holdfast.AssistantMessage) {
	if len(x.open) == 0 {
		// With calls open it is more of the same answer.
		x.steps++
	}
	x.text, x.stop = "", m.StopReason
	for _, p := range m.Parts {
		if text := p.Shown(); text != "" {
			if x.text != "" {
				x.text += "\n"
			}
			x.text += text
		}
	}
	x.usage = x.usage.Add(m.Usage)
}

func (x *run) closed(use string) {
	x.open = slices.DeleteFunc(x.open, func(o openCall) bool { return o.use == use })
}

// seen is the newest message of this turn that the agent got.
func (x *run) seen() int64 {
	var seen int64
	for _, m := range x.messages {
		if x.a != nil && m.seq <= x.a.data.Said {
			seen = m.seq
		}
	}
	return seen
}

// unsaid are the messages of this turn that the agent did not get.
func (x *run) unsaid() []heard {
	i := 0
	for i < len(x.messages) && x.a != nil && x.messages[i].seq <= x.a.data.Said {
		i++
	}
	return x.messages[i:]
}

// answered reports that the agent has answered all there is in this turn.
func (x *run) answered() bool {
	return x.a != nil && x.a.data.Prompt == nil && len(x.unsaid()) == 0
}

// keep records drafts together with the state as it stands.
func (x *run) keep(ctx context.Context, drafts ...journal.Draft) error {
	row, err := x.row()
	if err != nil {
		return err
	}
	events, err := x.host.Keep(ctx, append(x.others, row), append(x.owed, drafts...)...)
	if err != nil {
		x.torn = true
		return err
	}
	x.others, x.owed = nil, nil
	for _, s := range x.states {
		if s.Generation == row.Generation {
			row.Generation = 0
		}
	}
	if row.Generation != 0 {
		x.states = append(x.states, row)
	}
	if x.c != nil {
		x.c.taken.durable.Store(x.at)
	}
	for _, ev := range events {
		if ev.Type == holdfast.EventMessageUser {
			continue
		}
		if err := x.fold(ev); err != nil {
			return err
		}
	}
	return nil
}

// row is the state under way, with all that was handled taken.
func (x *run) row() (holdfast.AgentState, error) {
	if x.a.state.Call != "" {
		x.a.state.Taken = x.at
	}
	return x.a.row()
}

// notice tells readers something once in a run.
func (x *run) notice(ctx context.Context, code, level, text string) error {
	if x.warned[code+text] {
		return nil
	}
	x.warned[code+text] = true
	_, err := x.host.Keep(ctx, nil, draft(holdfast.EventNotice, holdfast.Notice{Code: code, Text: text, Level: level}))
	return err
}

func (x *run) plan(entries []planEntry) error {
	var b strings.Builder
	for _, e := range entries[:min(len(entries), 100)] {
		mark := " "
		if e.Status == "completed" {
			mark = "x"
		}
		fmt.Fprintf(&b, "[%s] %s\n", mark, cut(e.Content, 500))
	}
	if b.Len() == 0 {
		return nil
	}
	return x.record(draft(holdfast.EventNotice, holdfast.Notice{Code: "agent.plan", Text: strings.TrimSpace(b.String())}))
}

// unknown passes on an update of a kind that this server does not know, for readers that
// do; of a flood only the first ones.
func (x *run) unknown(kind string, params json.RawMessage) error {
	if x.unknowns++; x.unknowns > mostUnknown {
		return nil
	}
	return x.notice(x.context(), "agent.unknown", "", "the agent sent an update of the unknown kind "+holdfast.Quote(cut(kind, 60))+": "+cut(string(params), 2000))
}
