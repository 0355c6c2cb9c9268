package hook

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

// Result is the merged result of several hooks: the strictest verdict, the last rewritten input,
// and all their texts and updates. The zero value has no effect.
type Result struct {
	Verdict policy.Verdict
	// By names the hook that decided; Reason is its reason.
	By, Reason string
	// Input replaces the tool's input, ToolOutput the result of an MCP tool.
	Input      json.RawMessage
	ToolOutput *string
	// Updates are changes of the session's rules. For each rule the strictest hook counts.
	Updates []policy.Update
	// Context has the texts for the model (see Texts) of the runs that were executed now, not of
	// those whose result was known before.
	Context []string
	// Runs has an entry for each hook, in the order of the runs.
	Runs []Ran
}

// Decision returns the result as a decision for the policy.
func (r Result) Decision() policy.Decision {
	d := policy.Decision{Verdict: r.Verdict, Reason: r.Reason, Input: r.Input, Updates: r.Updates}
	if r.Verdict != policy.NoOpinion || r.Input != nil {
		d.By, d.Rule = "hook", r.By
	}
	if r.Verdict == policy.Denied && d.Reason == "" {
		d.Reason = "a hook refused the call, without a reason"
	}
	return d
}

// Blocked reports whether a hook refused the event.
func (r Result) Blocked() bool { return r.Verdict == policy.Denied }

// add merges one run into the result.
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

// Texts returns the texts that a hook's run adds to the conversation for the model, in the form
// in which the conversation has them, also when it is rebuilt from the log. Each is in a tag that
// text from a hook cannot close.
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

// Withheld replaces a message of the user that a hook refused, in the model's conversation.
const Withheld = "<system-reminder>The user said something here that a hook withheld.</system-reminder>"

// Withholds reports whether a hook's run for a message of the user withholds that message from the model.
func Withholds(ran holdfast.HookRan) bool { return ran.Decision == decisionName(policy.Denied) }

// Prompted returns the text that the model gets for a message of the user on which a hook ran:
// the text, or Withheld if the hook refused it, followed by the hook's texts.
func Prompted(text string, ran holdfast.HookRan) string {
	if Withholds(ran) {
		text = Withheld
	}
	return strings.Join(append([]string{text}, Texts(ran)...), "\n")
}

// change merges a change of the rules into the updates. If several hooks change the same rule,
// the strictest behavior is used.
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

// behaviors are the behaviors of rules, from mild to strict.
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
