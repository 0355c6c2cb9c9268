package resident

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

// UseState says how far a tool use has come. It only goes forward.
type UseState int

// The states of a tool use.
const (
	// Requested: the agent asked for it.
	Requested UseState = iota + 1
	// Started: it was allowed, and its intent is recorded.
	Started
	// Denied: it was not allowed.
	Denied
	// Answered: its outcome is recorded.
	Answered
)

// Use is a tool use of the turn. Only its Ledger changes it, but for Input and Orphan.
type Use struct {
	// ID names it within the turn; Agent is the sub-agent that asked for it.
	ID, Agent, Name string
	// Input is what is decided about, Rewritten what it runs with if that is another one.
	Input, Rewritten json.RawMessage
	Call             holdfast.CallID
	State            UseState
	// Reason is why it was denied.
	Reason string
	Began  time.Time
	// Orphan: its agent ended before it was decided.
	Orphan bool
	// Result is its outcome, if it has finished.
	Result *holdfast.ToolFinished
}

// Runs returns the input that the tool runs with.
func (u *Use) Runs() json.RawMessage {
	if u.Rewritten != nil {
		return u.Rewritten
	}
	return u.Input
}

// Over reports whether nothing more happens to it.
func (u *Use) Over() bool { return u.State == Denied || u.State == Answered }

// agentMark stands between a sub-agent and its tool use: their ids count within their
// own conversation.
const agentMark = "/"

// UseID names a tool use of the turn; agent is empty for the conversation itself.
func UseID(agent, id string) string {
	if agent == "" {
		return id
	}
	return agent + agentMark + id
}

// Ledger holds the tool uses of one turn. Each step of a use is handed to record, and
// no use takes a step twice. Make one with NewLedger.
type Ledger struct {
	record func(holdfast.EventType, any)
	now    func() time.Time
	uses   map[string]*Use
	// order holds them as they were asked for.
	order  []*Use
	inputs int
	began  bool
}

// NewLedger makes a Ledger without any use. Record gets the events of the steps.
func NewLedger(now func() time.Time, record func(typ holdfast.EventType, data any)) *Ledger {
	return &Ledger{record: record, now: now, uses: map[string]*Use{}}
}

// Get returns the use of an id, or nil.
func (l *Ledger) Get(id string) *Use { return l.uses[id] }

// All returns the uses in the order in which they were asked for.
func (l *Ledger) All() []*Use { return l.order }

// Inputs returns the size of all inputs in bytes.
func (l *Ledger) Inputs() int { return l.inputs }

// Began reports whether a tool was started in this turn.
func (l *Ledger) Began() bool { return l.began }

// Open reports whether a use has no outcome yet.
func (l *Ledger) Open() bool {
	for _, u := range l.order {
		if !u.Over() {
			return true
		}
	}
	return false
}

// Fold takes in an event of the turn that is in the log.
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

// Fold decodes the payload of an event and hands it to use.
func Fold[T any](ev holdfast.Event, use func(*T)) error {
	p := new(T)
	if err := ev.Decode(p); err != nil {
		return err
	}
	use(p)
	return nil
}

// Know adds a use whose request is recorded already, or with the answer that asks for it.
// An id that is asked for again while its use is open is that use.
func (l *Ledger) Know(d holdfast.ToolRequested) *Use {
	old := l.uses[d.ToolUseID]
	if old != nil && !old.Over() {
		return old
	}
	u := &Use{ID: d.ToolUseID, Name: d.Name, Input: d.Input, State: Requested}
	if i := strings.LastIndex(u.ID, agentMark); i >= 0 {
		u.Agent = u.ID[:i]
	}
	l.order = append(slices.DeleteFunc(l.order, func(o *Use) bool { return o == old }), u)
	l.uses[u.ID] = u
	l.inputs += len(u.Input)
	return u
}

// Request records that the agent asks for a tool.
func (l *Ledger) Request(id, name string, input json.RawMessage) *Use {
	d := holdfast.ToolRequested{ToolUseID: id, Name: name, Input: input}
	l.record(holdfast.EventToolRequested, d)
	return l.Know(d)
}

func (u *Use) decided(d policy.Decision) holdfast.ToolDecision {
	return holdfast.ToolDecision{ToolUseID: u.ID, Tool: u.Name, InputHash: holdfast.InputHash(u.Input), By: d.By, Rule: d.Rule}
}

// Allow records that a use was allowed, and with it the intent to run it.
func (l *Ledger) Allow(u *Use, d policy.Decision, call holdfast.CallID, box holdfast.BoxID, boot string) {
	ev := u.decided(d)
	ev.Input, u.Rewritten = d.Input, d.Input
	l.record(holdfast.EventToolAllowed, ev)
	l.Start(u, call, box, boot)
}

// Start records that a use runs. Of one that nobody was asked about it is the only trace.
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

// Finish records the outcome of a use: its text, and how it ended. The rest is filled in.
func (l *Ledger) Finish(u *Use, f holdfast.ToolFinished) {
	f.ToolUseID, f.Call = u.ID, u.Call
	if !u.Began.IsZero() {
		f.DurationMS = Milliseconds(l.now().Sub(u.Began))
	}
	l.record(holdfast.EventToolFinished, f)
	u.State, u.Result = Answered, &f
}

// Unknown records that nobody knows what came of a use that was started (I-13).
func (l *Ledger) Unknown(u *Use, why string) {
	l.record(holdfast.EventToolUnknown, holdfast.ToolUnknown{ToolUseID: u.ID, Call: u.Call, Reason: why})
	u.State = Answered
}

// End answers every open use. One that was started becomes unknown, or is canceled
// if stopped says that the agent was interrupted. One that was not started is
// canceled.
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
