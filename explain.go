package holdfast

import "encoding/json"

// ExplainPolicy is the request to explain how a tool call of a session would be decided.
type ExplainPolicy struct {
	Tool  string          `json:"tool" doc:"The tool's name, as Bash."`
	Input json.RawMessage `json:"input" doc:"What the tool would get, an object."`
}

// PolicyExplanation is how a tool call would be decided at this moment, and why. To
// find out, no person was asked, no hook ran, and nothing was changed.
type PolicyExplanation struct {
	// Verdict is allow, deny, or ask (a person would be asked).
	Verdict string `json:"verdict"`
	By      string `json:"by"`
	Rule    string `json:"rule,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Mode is the permission mode that the decision assumes.
	Mode Mode `json:"mode"`
	// Trace lists the policy stages that were consulted, in order; the last one decided.
	Trace []PolicyStep `json:"trace"`
}

// PolicyStep is the verdict of one policy stage on the way to a decision.
type PolicyStep struct {
	Stage   string `json:"stage"`
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
	Rule    string `json:"rule,omitempty"`
	// Rewrites is true if the stage changed the tool's input.
	Rewrites bool `json:"rewrites,omitempty"`
}
