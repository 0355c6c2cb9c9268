package resident

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/policy"
)

// UseState is the progress of a tool use. It only goes forward.
type UseState int

// The states of a tool use.
const (
	// Requested: the agent has asked for the tool use.
	Requested UseState = iota + 1
	// Started: the use was allowed, or ran without asking, and its intent is recorded.
	Started
	// Denied: the use was not allowed, so the tool does not run.
	Denied
	// Answered: the outcome of the use is recorded.
	Answered
)

// Use is a tool use of the turn. Only its Ledger and Late change it, except that a runtime may set Input and Reason.
type Use struct {
	// ID is unique within the turn; Agent is the id of the sub-agent that made the tool use, empty
	// for the main one.
	ID, Agent, Name string
	// Input is the input that is decided on; Rewritten is the input that the tool runs with, nil if
	// that is the same.
	Input, Rewritten json.RawMessage
	Call             holdfast.CallID
	State            UseState
	// Reason is why the use was denied.
	Reason string
	Began  time.Time
	// Orphan is true if the use was canceled before it was decided on, such as when the agent ended. Decision is the
	// decision that was made about an Orphan afterwards; nil if none was made.
	Orphan   bool
	Decision *policy.Decision
	// Result is the outcome, nil until the use has finished.
	Result *holdfast.ToolFinished
}

// Runs returns the input that the tool runs with.
func (u *Use) Runs() json.RawMessage {
	if u.Rewritten != nil {
		return u.Rewritten
	}
	return u.Input
}

// Over reports whether the use was denied or has its outcome.
func (u *Use) Over() bool { return u.State == Denied || u.State == Answered }

// agentMark separates the id of a sub-agent from the id of its tool use: sub-agents give out ids
// independently.
const agentMark = "/"

// UseID returns the id of a tool use within the turn. agent is the id of the sub-agent, empty
// for the main agent.
func UseID(agent, id string) string {
	if agent == "" {
		return id
	}
	return agent + agentMark + id
}

// Ledger holds the tool uses of one turn. It passes each step of a use as an event to the function that
// NewLedger got. Make one with NewLedger.
type Ledger struct {
	record func(holdfast.EventType, any)
	now    func() time.Time
	uses   map[string]*Use
	// order holds the uses in the order of their requests.
	order  []*Use
	inputs int
	began  bool
}

// NewLedger makes an empty Ledger. record gets an event for each step.
func NewLedger(now func() time.Time, record func(typ holdfast.EventType, data any)) *Ledger {
	return &Ledger{record: record, now: now, uses: map[string]*Use{}}
}

// Get returns the use with an id, or nil.
func (l *Ledger) Get(id string) *Use { return l.uses[id] }

// All returns the uses in the order of their requests.
func (l *Ledger) All() []*Use { return l.order }

// Inputs returns the size, in bytes, of all inputs that uses of the turn have had.
func (l *Ledger) Inputs() int { return l.inputs }

// Began reports whether any tool was started in this turn.
func (l *Ledger) Began() bool { return l.began }

// Open reports whether any use has no outcome yet.
func (l *Ledger) Open() bool {
	for _, u := range l.order {
		if !u.Over() {
			return true
		}
	}
	return false
}

// Fold adds an event of the turn from the log.
func (l *Ledger) Fold(ev holdfast.Event) error {
	switch ev.Type {
	case holdfast.EventToolRequested:
		return Fold(ev, func(d *holdfast.ToolRequested) { l.Know(*d) })
	case holdfast.EventToolAllowed, holdfast.EventToolDenied:
		return Fold(ev, func(d *holdfast.ToolDecision) {
			if u := l.uses[d.ToolUseID]; u != nil && ev.Type == holdfast.EventToolDenied {
				u.State, u.Reason = Denied, d.Reason
			} else if u != nil {
				u.Rewritten = d.Input
			}
		})
	case holdfast.EventToolStarted:
		return Fold(ev, func(d *holdfast.ToolStarted) {
			l.began = true
			if u := l.uses[d.ToolUseID]; u != nil {
				u.State, u.Call, u.Began = Started, d.Call, ev.Time
			}
		})
	case holdfast.EventToolFinished, holdfast.EventToolUnknown:
		return Fold(ev, func(d *holdfast.ToolFinished) {
			u := l.uses[d.ToolUseID]
			if u == nil {
				return
			}
			u.State = Answered
			if ev.Type == holdfast.EventToolFinished {
				u.Result, u.Orphan = d, d.Call == "" && d.Outcome == holdfast.ExitCanceled
			}
		})
	}
	return nil
}

// Fold decodes the payload of an event and passes it to use.
func Fold[T any](ev holdfast.Event, use func(*T)) error {
	p := new(T)
	if err := ev.Decode(p); err != nil {
		return err
	}
	use(p)
	return nil
}

// Know adds a use without recording a request, because the log has it or the answer contains it.
// If an open use has the same id, Know returns that use.
func (l *Ledger) Know(d holdfast.ToolRequested) *Use {
	old := l.uses[d.ToolUseID]
	if old != nil && !old.Over() {
		return old
	}
	u := &Use{ID: d.ToolUseID, Name: d.Name, Input: d.Input, State: Requested}
	if i := strings.LastIndex(u.ID, agentMark); i >= 0 {
		u.Agent = u.ID[:i]
	}
	l.order = append(slices.DeleteFunc(l.order, func(o *Use) bool { return o == old && !o.Orphan }), u)
	l.uses[u.ID] = u
	l.inputs += len(u.Input)
	return u
}

// Request adds a use and records that the agent asked for it.
func (l *Ledger) Request(id, name string, input json.RawMessage) *Use {
	d := holdfast.ToolRequested{ToolUseID: id, Name: name, Input: input}
	l.record(holdfast.EventToolRequested, d)
	return l.Know(d)
}

// Change gives a use another input, which a later request of the agent has.
func (l *Ledger) Change(u *Use, input json.RawMessage) {
	u.Input = input
	l.inputs += len(input)
}

func (u *Use) decided(d policy.Decision) holdfast.ToolDecision {
	return holdfast.ToolDecision{ToolUseID: u.ID, Tool: u.Name, InputHash: policy.InputHash(u.Input), By: d.By, Rule: d.Rule}
}

// Late stores a decision on the Orphan u, for a later use that asks for the same call again.
func (u *Use) Late(d policy.Decision, err error) {
	if u.Orphan && err == nil {
		u.Decision = &d
	}
}

// Before returns an Orphan that asked for the same call as u; nil if there is none. It clears the Orphan's field Orphan,
// so that it returns each use once. So a person who was asked about the first call is not asked again about u.
func (l *Ledger) Before(u *Use) *Use {
	for _, o := range l.order {
		if o.Orphan && o.Name == u.Name && o.Agent == u.Agent && SameJSON(o.Input, u.Input) {
			o.Orphan = false
			return o
		}
	}
	return nil
}

// SameJSON reports whether two JSON texts have the same value.
func SameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return bytes.Equal(Marshal(x), Marshal(y))
}

// Allow records that a use was allowed, and with it the intent to run it.
func (l *Ledger) Allow(u *Use, d policy.Decision, call holdfast.CallID, box holdfast.BoxID, boot string) {
	ev := u.decided(d)
	ev.Input, u.Rewritten = d.Input, d.Input
	l.record(holdfast.EventToolAllowed, ev)
	l.Start(u, call, box, boot)
}

// Start records that a use runs. For a use that ran without a permission request, the log has tool.started but no
// tool.allowed.
func (l *Ledger) Start(u *Use, call holdfast.CallID, box holdfast.BoxID, boot string) {
	l.record(holdfast.EventToolStarted, holdfast.ToolStarted{ToolUseID: u.ID, Call: call, Box: box, Boot: boot})
	u.State, u.Call, u.Began, l.began = Started, call, l.now(), true
}

// Deny records that a use was not allowed.
func (l *Ledger) Deny(u *Use, d policy.Decision) {
	ev := u.decided(d)
	ev.Reason = Valid(d.Reason)
	if ev.By == "" {
		ev.By = "policy"
	}
	l.record(holdfast.EventToolDenied, ev)
	u.State, u.Reason = Denied, ev.Reason
}

// Finish records the outcome f of a use. f has the content and how the use ended; Finish sets its other
// fields.
func (l *Ledger) Finish(u *Use, f holdfast.ToolFinished) {
	f.ToolUseID, f.Call = u.ID, u.Call
	if !u.Began.IsZero() {
		f.DurationMS = clock.Milliseconds(l.now().Sub(u.Began))
	}
	l.record(holdfast.EventToolFinished, f)
	u.State, u.Result = Answered, &f
}

// Unknown records that the outcome of a started use is unknown (I-13).
func (l *Ledger) Unknown(u *Use, why string) {
	l.record(holdfast.EventToolUnknown, holdfast.ToolUnknown{ToolUseID: u.ID, Call: u.Call, Reason: why})
	u.State = Answered
}

// End gives every open use an outcome. A started use becomes unknown, or canceled if stopped is true, because
// then the agent was interrupted. A use that was not started is canceled and becomes an Orphan.
func (l *Ledger) End(why string, stopped bool) {
	canceled := holdfast.ToolFinished{Outcome: holdfast.ExitCanceled, IsError: true}
	for _, u := range l.order {
		switch f := canceled; {
		case u.State == Started && !stopped:
			l.Unknown(u, why)
		case u.State == Started:
			f.Content = why + ": it may have done a part of its work"
			l.Finish(u, f)
		case u.State == Requested:
			f.Content = "this call was not carried out: " + why
			l.Finish(u, f)
			u.Orphan = true
		}
	}
}
