package hook

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

// MaxOutput is how much of a hook's answer is read, in bytes. One that writes more
// is ended and has failed.
const MaxOutput = 10 << 20

// What of an answer goes on, in bytes.
const (
	maxName    = 300
	maxMessage = 8 << 10
	maxReason  = 4 << 10
	maxContext = 64 << 10
	// maxInput bounds a rewritten input, and what replaces a tool's output.
	maxInput = 1 << 20
	maxRule  = 1000
)

// Output is what a hook says. The zero value is nothing.
type Output struct {
	// Message is for the log.
	Message string
	// Verdict is the strictest of what the answer asked for; Reason says why.
	Verdict policy.Verdict
	Reason  string
	// Context are texts for the model: systemMessage, then additionalContext.
	Context []string
	// Input replaces the tool's input: a JSON object.
	Input json.RawMessage
	// ToolOutput replaces what an MCP tool answered.
	ToolOutput *string
	// Rules change the session's rules from here on.
	Rules        []holdfast.RuleChange
	Notification *holdfast.HookNotification
}

// ParseOutput reads what a hook wrote: a JSON object, or any other text, which is
// a message. well is false for an object whose fields are not what they should be;
// that is a message as well.
func ParseOutput(b []byte) (out Output, well bool) {
	text := bytes.TrimSpace(b)
	if len(text) == 0 {
		return Output{}, true
	}
	if text[0] == '{' {
		var err error
		if out, err = parseObject(text); err == nil {
			return out, true
		}
		return Output{Message: clean(string(text), maxMessage)}, !json.Valid(text)
	}
	return Output{Message: clean(string(text), maxMessage)}, true
}

// answer is the wire form of an Output. Pointers tell what is absent.
type answer struct {
	Message          *string         `json:"message"`
	Block            *bool           `json:"block"`
	Decision         *string         `json:"decision"`
	Reason           *string         `json:"reason"`
	Notification     *notification   `json:"notification"`
	PermissionUpdate *ruleUpdate     `json:"permissionUpdate"`
	SystemMessage    *string         `json:"systemMessage"`
	Continue         *bool           `json:"continue"`
	StopReason       *string         `json:"stopReason"`
	Specific         json.RawMessage `json:"hookSpecificOutput"`
	specific
}

// specific are the fields that may stand at the top or in hookSpecificOutput.
type specific struct {
	UpdatedInput      json.RawMessage `json:"updatedInput"`
	AdditionalContext *string         `json:"additionalContext"`
	UpdatedOutput     json.RawMessage `json:"updatedMCPToolOutput"`
	Permission        *string         `json:"permissionDecision"`
	PermissionReason  *string         `json:"permissionDecisionReason"`
}

type notification struct {
	Title string `json:"title"`
	Body  string `json:"body"`
	Level string `json:"level"`
}

type ruleUpdate struct {
	Tool     string `json:"tool"`
	Behavior string `json:"behavior"`
}

func parseObject(text []byte) (Output, error) {
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return Output{}, err
	}
	parts := []specific{a.specific}
	if len(a.Specific) > 0 && string(a.Specific) != "null" {
		var nested specific
		if err := json.Unmarshal(a.Specific, &nested); err != nil {
			return Output{}, err
		}
		parts = append(parts, nested)
	}
	out := Output{Message: clean(str(a.Message), maxMessage), Reason: clean(str(a.Reason), maxReason)}
	if a.Block != nil && *a.Block {
		out.stricter(policy.Denied, "")
	}
	if a.Continue != nil && !*a.Continue {
		out.stricter(policy.Denied, str(a.StopReason))
	}
	v, err := verdict("decision", a.Decision, map[string]policy.Verdict{"approve": policy.Allowed, "block": policy.Denied})
	if err != nil {
		return Output{}, err
	}
	out.stricter(v, "")
	if s := str(a.SystemMessage); s != "" {
		out.Context = append(out.Context, clean(s, maxContext))
	}
	for _, p := range parts {
		if err := out.specific(p); err != nil {
			return Output{}, err
		}
	}
	if n := a.Notification; n != nil {
		out.Notification = &holdfast.HookNotification{Title: clean(n.Title, maxReason), Body: clean(n.Body, maxMessage), Level: level(n.Level)}
	}
	if u := a.PermissionUpdate; u != nil {
		if err := policy.CheckRule(u.Tool); err != nil || len(u.Tool) > maxRule {
			return Output{}, holdfast.Errorf(holdfast.KindInvalid, op, "permissionUpdate.tool is not a rule")
		}
		if !slices.Contains(behaviors, u.Behavior) {
			return Output{}, holdfast.Errorf(holdfast.KindInvalid, op, "permissionUpdate.behavior: %s", holdfast.Quote(u.Behavior))
		}
		out.Rules = append(out.Rules, holdfast.RuleChange{Scope: holdfast.ScopeSession, Behavior: u.Behavior, Rule: u.Tool})
	}
	return out, nil
}

// specific takes the fields in that may be nested.
func (o *Output) specific(p specific) error {
	if s := str(p.AdditionalContext); s != "" {
		o.Context = append(o.Context, clean(s, maxContext))
	}
	if in := bytes.TrimSpace(p.UpdatedInput); len(in) > 0 && string(in) != "null" {
		if in[0] != '{' || len(in) > maxInput {
			return holdfast.Errorf(holdfast.KindInvalid, op, "updatedInput is not an object of at most %d bytes", maxInput)
		}
		o.Input = json.RawMessage(in)
	}
	if raw := bytes.TrimSpace(p.UpdatedOutput); len(raw) > 0 && string(raw) != "null" {
		s := string(raw)
		var plain string
		if json.Unmarshal(raw, &plain) == nil {
			s = plain
		}
		if len(s) > maxInput {
			return holdfast.Errorf(holdfast.KindInvalid, op, "updatedMCPToolOutput is over %d bytes", maxInput)
		}
		o.ToolOutput = &s
	}
	v, err := verdict("permissionDecision", p.Permission, map[string]policy.Verdict{
		"allow": policy.Allowed, "deny": policy.Denied, "ask": policy.Asked,
	})
	if err != nil {
		return err
	}
	o.stricter(v, str(p.PermissionReason))
	return nil
}

// stricter takes a verdict in unless there is a stricter one.
func (o *Output) stricter(v policy.Verdict, reason string) {
	if v < o.Verdict {
		return
	}
	if o.Reason == "" || v > o.Verdict && reason != "" {
		o.Reason = clean(reason, maxReason)
	}
	o.Verdict = v
}

func verdict(field string, s *string, known map[string]policy.Verdict) (policy.Verdict, error) {
	if s == nil {
		return policy.NoOpinion, nil
	}
	v, ok := known[*s]
	if !ok {
		return v, holdfast.Errorf(holdfast.KindInvalid, op, "%s: %s is not known", field, holdfast.Quote(*s))
	}
	return v, nil
}

func level(s string) string {
	switch s {
	case "warning", "error", "debug":
		return s
	}
	return "info"
}

func str(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// clean makes text from a hook fit to be kept and shown: valid, without control
// characters but line ends and tabs, and bounded.
func clean(s string, most int) string {
	cut := false
	if len(s) > most {
		s, cut = s[:most], true
		for len(s) > 0 && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
		if r, n := utf8.DecodeLastRuneInString(s); r == utf8.RuneError && n == 1 {
			s = s[:len(s)-1]
		}
	}
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if unicode.Is(unicode.C, r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "�"))
	if cut {
		s += " …"
	}
	return s
}

// oneLine takes line ends out.
func oneLine(s string) string { return strings.NewReplacer("\n", " ", "\t", " ").Replace(s) }
