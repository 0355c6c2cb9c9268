// Package replay evaluates the tool calls of a session's log under another policy, and finds
// those that would be decided otherwise.
//
// The CLI calls it; it imports the vocabulary and policy. It reads one event after the other and
// stores only rules and the calls that have no decision yet. Invariant: it decides nothing that the
// log does not show: decisions of hooks stay as they were, and calls that no policy decided are skipped.
package replay

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

// Outcome is the decision on a call: the recorded one, or the one that the draft policy would make.
type Outcome struct {
	// Verdict is allow, deny, or ask if a person was or would be asked.
	Verdict string `json:"verdict"`
	By      string `json:"by"`
	Rule    string `json:"rule,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Answer is the result of asking a person: allowed, denied or expired; AnsweredBy is the person
	// who answered.
	Answer     string `json:"answer,omitempty"`
	AnsweredBy string `json:"answered_by,omitempty"`
}

// Call is a recorded call with the decisions of both policies.
type Call struct {
	Session   holdfast.SessionID `json:"session_id"`
	Seq       int64              `json:"seq"`
	ToolUseID string             `json:"tool_use_id"`
	Tool      string             `json:"tool"`
	// Input is the input with which the tool ran, or would have run had the call not been denied.
	Input   json.RawMessage `json:"input"`
	Mode    holdfast.Mode   `json:"mode"`
	Old     Outcome         `json:"old"`
	New     Outcome         `json:"new"`
	Differs bool            `json:"differs"`
}

// Replay evaluates the log of one session under a draft policy. It is not safe for concurrent use.
type Replay struct {
	draft *policy.Engine
	mode  holdfast.Mode
	trust holdfast.Trust
	// policy is the draft policy with the session's own rules.
	policy *policy.Engine
	rules  []added
	calls  map[string]*open
}

// added is a rule that an answer or a hook added while the session had this trust.
type added struct {
	holdfast.RuleChange
	trust holdfast.Trust
}

// New makes a Replay with a draft policy.
func New(draft *policy.Engine) *Replay {
	return &Replay{draft: draft, policy: draft, calls: map[string]*open{}}
}

// open is a call without a decision yet.
type open struct {
	holdfast.ToolRequested
	seq      int64
	asked    *holdfast.Approval
	answered *holdfast.ApprovalAnswered
	// mode and policy are those at the time when a person was asked, because the answer may have
	// changed the rules.
	mode   holdfast.Mode
	policy *policy.Engine
}

// Event handles the next event of the log, which must be passed from its first event on. If the
// event decides a call, Event returns that call, or, if no policy decided the call (for example
// because its tool does not exist), skipped true.
func (r *Replay) Event(ctx context.Context, ev holdfast.Event) (call *Call, skipped bool, err error) {
	switch ev.Type {
	case holdfast.EventSessionCreated:
		var d holdfast.SessionCreated
		err := ev.Decode(&d)
		r.mode, r.trust = d.Mode, d.Trust
		return nil, false, err
	case holdfast.EventSessionUpdated:
		var d holdfast.SessionUpdated
		if err := ev.Decode(&d); err != nil {
			return nil, false, err
		}
		if d.Mode != nil {
			r.mode = *d.Mode
		}
		if d.Trust != nil {
			r.trust = *d.Trust
			return nil, false, r.compile()
		}
	case holdfast.EventRulesChanged:
		return nil, false, r.change(ev)
	case holdfast.EventToolRequested:
		o := &open{seq: ev.Seq}
		if err := ev.Decode(&o.ToolRequested); err != nil {
			return nil, false, err
		}
		r.calls[o.ToolUseID] = o
	case holdfast.EventApprovalAsked, holdfast.EventApprovalAnswered, holdfast.EventApprovalExpired:
		return nil, false, r.approval(ev)
	case holdfast.EventToolAllowed, holdfast.EventToolDenied:
		return r.decided(ctx, ev)
	}
	return nil, false, nil
}

// approval records that a person was asked about a call, or the answer.
func (r *Replay) approval(ev holdfast.Event) error {
	if ev.Type == holdfast.EventApprovalAsked {
		var d holdfast.Approval
		if err := ev.Decode(&d); err != nil {
			return err
		}
		if o := r.calls[d.ToolUseID]; o != nil {
			o.asked, o.answered, o.mode, o.policy = &d, nil, r.mode, r.policy
		}
		return nil
	}
	var d holdfast.ApprovalAnswered
	if err := ev.Decode(&d); err != nil {
		return err
	}
	if o := r.calls[d.ToolUseID]; o != nil {
		o.answered = &d
	}
	return nil
}

// change applies a change of the session's rules.
func (r *Replay) change(ev holdfast.Event) error {
	var d holdfast.RulesChanged
	if err := ev.Decode(&d); err != nil {
		return err
	}
	for _, c := range d.Changes {
		kept := r.rules[:0:0]
		for _, have := range r.rules {
			if have.Scope != c.Scope || have.Behavior != c.Behavior || have.Rule != c.Rule {
				kept = append(kept, have)
			}
		}
		if r.rules = kept; !c.Removed {
			r.rules = append(r.rules, added{c, r.trust})
		}
	}
	return r.compile()
}

// compile adds the session's rules to the draft policy. It leaves out rules that allow calls and were added when the
// session had a lower trust than now (I-48).
func (r *Replay) compile() error {
	var cfg policy.Config
	for _, c := range r.rules {
		if c.Behavior != "deny" && c.Behavior != "ask" && r.trust.Exceeds(cmp.Or(c.trust, holdfast.Untrusted)) {
			continue
		}
		rule, err := r.draft.ParseRule(c.Rule)
		if err != nil {
			return err
		}
		cfg.Add(c.Behavior, rule)
	}
	var err error
	r.policy, err = r.draft.With(cfg)
	return err
}

// decided compares a decision in the log with the draft's.
func (r *Replay) decided(ctx context.Context, ev holdfast.Event) (*Call, bool, error) {
	var d holdfast.ToolDecision
	if err := ev.Decode(&d); err != nil {
		return nil, false, err
	}
	o := r.calls[d.ToolUseID]
	delete(r.calls, d.ToolUseID)
	if o == nil || d.By == "unknown tool" || d.By == "input" {
		return nil, true, nil
	}
	c := &Call{Session: ev.Session, Seq: o.seq, ToolUseID: d.ToolUseID, Tool: o.Name, Input: o.Input, Mode: r.mode}
	if d.Input != nil {
		c.Input = d.Input
	}
	c.Old = o.outcome(ev.Type, d)
	decider := r.policy
	if o.asked != nil {
		c.Mode, decider = o.mode, o.policy
	}
	req := policy.Request{
		Session: ev.Session, Mode: c.Mode, Tool: o.Name, ReadOnly: decider.Reads(o.Name), Input: c.Input, CallID: d.ToolUseID,
		Sandboxed: r.trust == holdfast.Untrusted, Hooks: hooked(c.Old),
	}
	got, _, err := decider.Rehearse(ctx, req)
	if err != nil {
		return nil, false, err
	}
	c.New = Outcome{Verdict: got.Verdict.String(), By: got.By, Rule: got.Rule, Reason: got.Reason}
	c.Differs = c.Old.Verdict != c.New.Verdict
	return c, false, nil
}

// outcome returns the decision of the log as an Outcome.
func (o *open) outcome(typ holdfast.EventType, d holdfast.ToolDecision) Outcome {
	out := Outcome{Verdict: policy.Allowed.String(), By: d.By, Rule: d.Rule, Reason: d.Reason}
	if typ == holdfast.EventToolDenied {
		out.Verdict = policy.Denied.String()
	}
	if o.asked == nil {
		return out
	}
	out = Outcome{Verdict: policy.Asked.String(), By: o.asked.By, Rule: o.asked.Rule, Reason: o.asked.Reason, Answer: string(holdfast.ApprovalExpired)}
	if o.answered != nil {
		out.Answer, out.AnsweredBy = string(o.answered.State), o.answered.By
	}
	return out
}

// hooked returns the decision of the hooks if they decided, because no hook runs in a replay.
func hooked(old Outcome) policy.Decision {
	if old.By != "hook" {
		return policy.Decision{}
	}
	d := policy.Decision{Verdict: policy.Allowed, By: old.By, Reason: old.Reason}
	switch old.Verdict {
	case policy.Denied.String():
		d.Verdict = policy.Denied
	case policy.Asked.String():
		d.Verdict = policy.Asked
	}
	return d
}
