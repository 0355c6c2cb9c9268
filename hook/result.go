package hook

import (
	"encoding/json"
	"slices"
	"strings"

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
	// Context are texts for the model (see Texts) of the runs that were made now.
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
		r.Context = append(r.Context, Texts(ran.HookRan)...)
	}
	r.Runs = append(r.Runs, ran)
}

// Texts are what a run has to say to the model, as they stand in the conversation,
// now and whenever it is read from the log again. What comes from a hook cannot
// close the tag around it.
func Texts(ran holdfast.HookRan) []string {
	said := slices.Clone(ran.Context)
	switch Event(ran.Event) {
	case PostToolUse, PostToolUseFailure, PostToolBatch:
		if ran.Decision == decisionName(policy.Denied) {
			said = append(said, "It objects: "+ran.Reason)
		}
	}
	for i, s := range said {
		said[i] = "<system-reminder>A hook (" + ran.Event + ", " + ran.Where + ") says: " + inert.Replace(s) + "</system-reminder>"
	}
	return said
}

var inert = strings.NewReplacer("<", "‹", ">", "›")

// Withheld stands for a message of the user that a hook refused.
const Withheld = "<system-reminder>The user said something here that a hook withheld.</system-reminder>"

// Prompted is what the user said, after a run of a hook for it.
func Prompted(text string, ran holdfast.HookRan) string {
	if ran.Decision == decisionName(policy.Denied) {
		text = Withheld
	}
	return strings.Join(append([]string{text}, Texts(ran)...), "\n")
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
