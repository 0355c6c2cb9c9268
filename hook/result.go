package hook

import (
	"encoding/json"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

// Result is what several hooks came to: the strictest verdict, the last rewritten
// input, and everything that they said. The zero value is nothing.
type Result struct {
	Verdict policy.Verdict
	// By is the hook that decided, Reason why.
	By, Reason string
	// Input replaces the tool's input, ToolOutput what an MCP tool answered.
	Input      json.RawMessage
	ToolOutput *string
	// Updates change the rules of the session; none makes a stricter one milder.
	Updates []policy.Update
	// Context are texts for the model that are not in the log yet, in order.
	Context []string
	// Runs has an entry for each run, in order.
	Runs []Ran
}

// Decision is the result as policy takes it.
func (r Result) Decision() policy.Decision {
	d := policy.Decision{Verdict: r.Verdict, Reason: r.Reason, Input: r.Input, Updates: r.Updates}
	if r.Verdict != policy.NoOpinion || r.Input != nil {
		d.By, d.Rule = "hook", r.By
	}
	if r.Verdict == policy.Denied && d.Reason == "" {
		d.Reason = "a hook refused it"
	}
	return d
}

// Blocked reports that a hook refused what it was told of.
func (r Result) Blocked() bool { return r.Verdict == policy.Denied }

// add takes one run in.
func (r *Result) add(ran Ran) {
	v := verdictOf(ran.Decision)
	if v > r.Verdict {
		r.Verdict, r.By, r.Reason = v, ran.Hook, ran.Reason
	}
	if len(ran.Input) > 0 {
		r.Input = ran.Input
	}
	if ran.Output != nil {
		r.ToolOutput = ran.Output
	}
	for _, c := range ran.Rules {
		r.change(c)
	}
	if !ran.Known {
		r.Context = append(r.Context, ran.Context...)
	}
	r.Runs = append(r.Runs, ran)
}

// change takes a change of the rules in, unless an earlier hook was stricter about
// the same rule.
func (r *Result) change(c holdfast.RuleChange) {
	strict := func(behavior string) int { return slices.Index(behaviors, behavior) }
	for i, u := range r.Updates {
		if len(u.Rules) == 1 && u.Rules[0] == c.Rule {
			if strict(c.Behavior) > strict(u.Behavior) {
				r.Updates[i].Behavior = c.Behavior
			}
			return
		}
	}
	r.Updates = append(r.Updates, policy.Update{
		Type: policy.AddRules, Destination: policy.ToSession, Behavior: c.Behavior, Rules: []string{c.Rule},
	})
}

// behaviors are those of rules, from mild to strict.
var behaviors = []string{"allow", "ask", "deny"}

var decisionNames = map[policy.Verdict]string{policy.Allowed: "allow", policy.Asked: "ask", policy.Denied: "deny"}

func decisionName(v policy.Verdict) string { return decisionNames[v] }

func verdictOf(name string) policy.Verdict {
	for v, n := range decisionNames {
		if n == name {
			return v
		}
	}
	return policy.NoOpinion
}
