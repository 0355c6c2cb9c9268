package engine

import (
	"context"
	"encoding/json"
	"net/url"
	"path"
	"strings"
	"unicode"

	"github.com/holdfast-run/holdfast/policy"
)

// maxSuggestion bounds a suggested rule: a person has to read it.
const maxSuggestion = 300

// suggest is the rule that would allow a call and as little else as rules can say;
// empty when there is none that a person should agree to without thinking.
func suggest(ctx context.Context, p *policy.Engine, req policy.Request) string {
	var in map[string]json.RawMessage
	if json.Unmarshal(req.Input, &in) != nil {
		return ""
	}
	text := req.Tool
	if t, ok := p.Tool(req.Tool); ok && t.Subject != policy.SubjectNone {
		var of string
		if raw, ok := in[t.Field]; ok && json.Unmarshal(raw, &of) != nil {
			return ""
		}
		text = useOf(t, of)
	}
	if text == "" || len(text) > maxSuggestion {
		return ""
	}
	rule, err := p.ParseRule(text)
	if err != nil {
		return ""
	}
	d, err := policy.Rules(policy.RuleSet{Allow: []policy.Rule{rule}}, p.Tools()...).Evaluate(ctx, req)
	if err != nil || d.Verdict != policy.Allowed {
		return ""
	}
	return rule.String()
}

// useOf is the rule for one use of a tool.
func useOf(t policy.Tool, of string) string {
	switch {
	case t.Subject == policy.SubjectURL:
		u, err := url.Parse(of)
		if err != nil {
			return ""
		}
		return scoped(t.Name, prefixed("domain:", u.Hostname()))
	case t.Subject != policy.SubjectPath:
		return scoped(t.Name, of)
	case t.Class == policy.ClassEdits:
		return scoped("Edit", exactPath(of))
	}
	return scoped("Read", exactPath(of))
}

// scoped is a rule for one use of a tool; empty where the use has signs that mean
// more than themselves in a rule, or that cannot be seen.
func scoped(tool, use string) string {
	if strings.TrimSpace(use) == "" || use != strings.TrimSpace(use) || strings.ContainsAny(use, `*?[]\`) {
		return ""
	}
	for _, r := range use {
		if !unicode.IsPrint(r) {
			return ""
		}
	}
	return tool + "(" + use + ")"
}

// exactPath is a path that a rule takes for that path alone: a bare name would be
// that name anywhere.
func exactPath(p string) string {
	switch {
	case p == "":
		return ""
	case strings.HasPrefix(p, "/"), strings.HasPrefix(p, "~/"):
		return path.Clean(p)
	}
	return "./" + path.Clean(p)
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}
