package hook

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/policy"
)

// MaxOutput is how many bytes a hook may write to each of stdout and stderr, or send as its HTTP
// answer. A hook that writes more is ended and counts as failed.
const MaxOutput = 10 << 20

// The greatest lengths, in bytes, of names of hooks and of the parts of an answer. Longer names and texts are cut.
const (
	maxName    = 300
	maxMessage = 8 << 10
	maxReason  = 4 << 10
	maxContext = 64 << 10
	// maxInput is the limit, in bytes, for a tool input that a hook rewrote and for the text with which it replaced a
	// tool result. A larger one makes the answer invalid.
	maxInput = 1 << 20
	maxRule  = 1000 // a longer permission rule makes the answer invalid
)

// Output is the answer of a hook. The zero value has no effect.
type Output struct {
	// Message is a text for the log.
	Message string
	// Verdict is the strictest verdict in the answer; Reason is the reason for it.
	Verdict policy.Verdict
	Reason  string
	// Context has texts for the model: systemMessage, then additionalContext.
	Context []string
	// Input, a JSON object, replaces the tool's input; nil leaves it as it is.
	Input json.RawMessage
	// ToolOutput replaces the result of an MCP tool; nil leaves it as it is.
	ToolOutput *string
	// Rules are changes of the session's permission rules.
	Rules        []holdfast.RuleChange
	Notification *holdfast.HookNotification
}

// ParseOutput parses the answer that a hook wrote. Text that does not begin with "{" becomes a Message, and so does text
// that begins with "{" and is not a JSON object with valid fields, such as one that was cut off. well is false only for
// the latter.
func ParseOutput(b []byte) (out Output, well bool) {
	text := bytes.TrimSpace(b)
	if len(text) == 0 {
		return Output{}, true
	}
	object := text[0] == '{'
	if object {
		var err error
		if out, err = parseObject(text); err == nil {
			return out, true
		}
	}
	return Output{Message: clean(string(text), maxMessage)}, !object
}

// answer is the JSON form of an Output. A nil pointer means that the field is absent.
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

// specific has the fields that may be at the top level or in hookSpecificOutput.
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
			return Output{}, holdfast.Errorf(holdfast.KindInvalid, op, "permissionUpdate.tool in the hook's answer is not a permission rule")
		}
		if !slices.Contains(behaviors, u.Behavior) {
			return Output{}, holdfast.Errorf(holdfast.KindInvalid, op, "permissionUpdate.behavior in the hook's answer is %s, not a behavior of a permission rule", holdfast.Quote(u.Behavior))
		}
		out.Rules = append(out.Rules, holdfast.RuleChange{Scope: holdfast.ScopeSession, Behavior: u.Behavior, Rule: u.Tool})
	}
	return out, nil
}

// specific merges the fields of p into the answer.
func (o *Output) specific(p specific) error {
	if s := str(p.AdditionalContext); s != "" {
		o.Context = append(o.Context, clean(s, maxContext))
	}
	if in := bytes.TrimSpace(p.UpdatedInput); len(in) > 0 && string(in) != "null" {
		if in[0] != '{' || len(in) > maxInput {
			return holdfast.Errorf(holdfast.KindInvalid, op, "updatedInput in the hook's answer is not an object of at most %d bytes", maxInput)
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
			return holdfast.Errorf(holdfast.KindInvalid, op, "updatedMCPToolOutput in the hook's answer is over %d bytes", maxInput)
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

// stricter sets the verdict to v unless the answer has a stricter one already.
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
		return v, holdfast.Errorf(holdfast.KindInvalid, op, "the field %s in the hook's answer has the unknown value %s", field, holdfast.Quote(*s))
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

// clean makes text from a hook safe to store and show: it cuts a text of more bytes than most and
// ends it with …, replaces invalid UTF-8, and removes control characters and invisible ones, except line ends and tabs.
func clean(s string, most int) string {
	cut := false
	if len(s) > most {
		s, cut = clip.Head(s, most), true
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

// oneLine replaces line ends and tabs by spaces.
func oneLine(s string) string { return strings.NewReplacer("\n", " ", "\t", " ").Replace(s) }
