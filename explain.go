package holdfast

import "encoding/json"

// ExplainPolicy asks how a tool call of a session would be decided.
type ExplainPolicy struct {
	Tool  string          `json:"tool" doc:"The tool's name, as Bash."`
	Input json.RawMessage `json:"input" doc:"What the tool would get, an object."`
}

// PolicyExplanation is how a call would be decided as things stand, and why. Nobody
// was asked for it, no hook ran, and nothing has changed.
type PolicyExplanation struct {
	// Verdict is allow, deny, or ask where a person would be asked.
	Verdict string `json:"verdict"`
	By      string `json:"by"`
	Rule    string `json:"rule,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Mode is the permission mode it was decided in.
	Mode Mode `json:"mode"`
	// Trace is every opinion that was asked for, in order; the last one decided.
	Trace []PolicyStep `json:"trace"`
}

// PolicyStep is one opinion on the way to a decision.
type PolicyStep struct {
	Stage   string `json:"stage"`
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
	Rule    string `json:"rule,omitempty"`
	// Rewrites says that the opinion changed the tool's input.
	Rewrites bool `json:"rewrites,omitempty"`
}
