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
func suggest(ctx context.Context, req policy.Request) string {
	var in struct {
		Command  string `json:"command"`
		FilePath string `json:"file_path"`
		Path     string `json:"path"`
		URL      string `json:"url"`
	}
	if json.Unmarshal(req.Input, &in) != nil {
		return ""
	}
	text := req.Tool
	switch req.Tool {
	case "Bash":
		text = scoped("Bash", in.Command)
	case "Write", "Edit":
		text = scoped("Edit", exactPath(in.FilePath))
	case "Read", "Glob", "Grep", "LS":
		p := in.FilePath
		if p == "" {
			p = in.Path
		}
		text = scoped("Read", exactPath(p))
	case "WebFetch":
		u, err := url.Parse(in.URL)
		if err != nil {
			return ""
		}
		text = scoped("WebFetch", prefixed("domain:", u.Hostname()))
	}
	if text == "" || len(text) > maxSuggestion {
		return ""
	}
	rule, err := policy.ParseRule(text)
	if err != nil {
		return ""
	}
	d, err := policy.Rules(policy.RuleSet{Allow: []policy.Rule{rule}}).Evaluate(ctx, req)
	if err != nil || d.Verdict != policy.Allowed {
		return ""
	}
	return rule.String()
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
