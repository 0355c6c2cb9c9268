package policy

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// Rule is a tool, or some uses of it: Bash, Bash(git *), Read(~/.ssh/**),
// WebFetch(domain:example.com), mcp__server, mcp__server__tool.
type Rule struct {
	// Tool is the name as it was written, Spec what stands in parentheses; Scoped
	// says that there are some.
	Tool, Spec string
	Scoped     bool
}

// ParseRule reads a rule; what would never match is invalid.
func ParseRule(s string) (Rule, error) {
	text := strings.TrimSpace(s)
	tool, rest, scoped := strings.Cut(text, "(")
	r := Rule{Tool: tool, Scoped: scoped}
	if scoped {
		spec, closed := strings.CutSuffix(rest, ")")
		if !closed {
			return Rule{}, badRule(s, "the parenthesis is not closed")
		}
		r.Spec = spec
	}
	name, known := canonical(tool)
	switch {
	case text == "":
		return Rule{}, badRule(s, "it is empty")
	case !known && !serverTool(tool):
		return Rule{}, badRule(s, "there is no such tool")
	case serverTool(tool) && (scoped || strings.Trim(strings.TrimPrefix(tool, "mcp__"), "_*") == ""):
		return Rule{}, badRule(s, "a rule for a server's tools is mcp__server or mcp__server__tool")
	case scoped && strings.TrimSpace(r.Spec) == "":
		return Rule{}, badRule(s, "nothing stands in the parentheses")
	case !scoped:
		return r, nil
	}
	switch name {
	case "Bash", "Task":
		return r, nil
	case "Read", "Glob", "Grep", "LS", "Write", "Edit":
		if _, err := path.Match(strings.ReplaceAll(r.Spec, "**", "*"), ""); err != nil {
			return Rule{}, badRule(s, "it is not a pattern of paths")
		}
		if dir, ok := strings.CutSuffix(r.Spec, "/"); ok && r.Spec != "/" {
			return Rule{}, badRule(s, "no path ends in a slash; "+dir+"/** is what lies below it")
		}
		if strings.Contains(r.Spec[1:], "//") || !relative(r.Spec) && slices.ContainsFunc(strings.Split(r.Spec, "/"), func(p string) bool { return p == "." || p == ".." }) {
			return Rule{}, badRule(s, "no path looks like that once it is resolved")
		}
		return r, nil
	case "WebFetch":
		domain, ok := strings.CutPrefix(r.Spec, "domain:")
		if !ok || !check.ValidDomain(domain) {
			return Rule{}, badRule(s, "write WebFetch(domain:example.com)")
		}
		return r, nil
	}
	return Rule{}, badRule(s, name+" takes no parentheses")
}

func badRule(s, why string) error {
	return holdfast.Errorf(holdfast.KindInvalid, "rule", "%s: %s", holdfast.Quote(s), why).
		WithHint("use a tool's name, or one with its uses, as Bash(git *) or Read(/etc/**)")
}

// canonical is the tool that a name means, without regard to case.
func canonical(name string) (string, bool) {
	for t := range tools {
		if strings.EqualFold(t, name) {
			return t, true
		}
	}
	return "", false
}

// OfPaths reports whether what stands in the parentheses is a pattern of paths.
func (r Rule) OfPaths() bool {
	name, _ := canonical(r.Tool)
	return r.Scoped && (tools[name] == reads || tools[name] == edits)
}

// relative reports whether a pattern begins at the tools' working directory.
func relative(pattern string) bool {
	return strings.Contains(pattern, "/") && !strings.HasPrefix(pattern, "/") && !strings.HasPrefix(pattern, "~/") && !strings.HasPrefix(pattern, "**/")
}

func (r Rule) String() string {
	if r.Scoped {
		return r.Tool + "(" + r.Spec + ")"
	}
	return r.Tool
}

// RuleSet are rules by what they do.
type RuleSet struct{ Allow, Ask, Deny []Rule }

// ParseRules reads three lists of rules; the error names list and place.
func ParseRules(allow, asks, denies []string) (RuleSet, error) {
	var out RuleSet
	for _, l := range []struct {
		field string
		in    []string
		out   *[]Rule
	}{{"allow", allow, &out.Allow}, {"ask", asks, &out.Ask}, {"deny", denies, &out.Deny}} {
		for i, s := range l.in {
			r, err := ParseRule(s)
			if err != nil {
				return RuleSet{}, holdfast.Errorf(holdfast.KindInvalid, "rules", "permissions.%s[%d]: %w", l.field, i, err).WithHint("%s", holdfast.HintOf(err))
			}
			*l.out = append(*l.out, r)
		}
	}
	return out, nil
}

// Add adds a rule by what it does: allow, ask, deny or grant. What is not known is
// taken for the strictest.
func (c *Config) Add(behavior string, r Rule) {
	switch behavior {
	case "allow":
		c.Rules.Allow = append(c.Rules.Allow, r)
	case "ask":
		c.Rules.Ask = append(c.Rules.Ask, r)
	case "grant":
		c.Granted = append(c.Granted, r)
	default:
		c.Rules.Deny = append(c.Rules.Deny, r)
	}
}

// Rules is a rule set as a policy: deny, then ask, then allow.
func Rules(s RuleSet) Policy {
	return Func(func(_ context.Context, req Request) (Decision, error) {
		c := newCall(req)
		for _, stage := range []func(*call) Decision{s.denies, s.asks, s.allows} {
			if d := stage(c); d.Verdict != NoOpinion {
				return d, nil
			}
		}
		return Decision{}, nil
	})
}

func (s RuleSet) denies(req *call) Decision {
	for _, r := range s.Deny {
		if why, ok := r.touches(req); ok {
			return Decision{Verdict: Denied, By: "deny rule", Rule: r.String(), Reason: "the rule " + r.String() + " denies it" + why}
		}
	}
	return Decision{}
}

func (s RuleSet) asks(req *call) Decision {
	for _, r := range s.Ask {
		if why, ok := r.touches(req); ok {
			return Decision{Verdict: Asked, By: "ask rule", Rule: r.String(), Reason: "the rule " + r.String() + " wants it asked" + why}
		}
	}
	return Decision{}
}

// allows holds only if every part of the call is allowed by some rule.
func (s RuleSet) allows(req *call) Decision {
	rules := slices.DeleteFunc(slices.Clone(s.Allow), func(r Rule) bool { return r.Tool != req.Tool && !r.server(req.Tool) && !r.family(req.Tool, true) })
	if len(rules) == 0 {
		return Decision{}
	}
	yes := func(r Rule) Decision { return Decision{Verdict: Allowed, By: "allow rule", Rule: r.String()} }
	for _, r := range rules {
		if !r.Scoped || req.Tool != "Bash" && r.matches(req) {
			return yes(r)
		}
	}
	if req.Tool != "Bash" {
		return Decision{}
	}
	if !req.readable {
		return Decision{}
	}
	an, err := req.analysis()
	if err != nil || len(an.Opaque) > 0 || len(an.Commands) == 0 {
		return Decision{}
	}
	for _, red := range an.Redirects {
		if red.Writes && red.Path != "/dev/null" {
			return Decision{}
		}
	}
	// The rule that is named is that of the first command.
	first := -1
	for _, c := range an.Commands {
		i := slices.IndexFunc(rules, func(r Rule) bool { return c.Name == path.Base(c.Name) && commandMatches(r.Spec, c, c.Name) })
		if i < 0 {
			return Decision{}
		}
		if first < 0 {
			first = i
		}
	}
	return yes(rules[first])
}

// server reports whether a rule means a server's tool.
func (r Rule) server(tool string) bool {
	if !serverTool(r.Tool) || !serverTool(tool) {
		return false
	}
	name := strings.TrimSuffix(r.Tool, "__*")
	return tool == r.Tool || name == tool || strings.HasPrefix(tool, name+"__")
}

// family reports whether a rule for one file tool means another one too: what
// holds for Read holds for the tools that search, what holds for Edit for Write.
func (r Rule) family(tool string, exact bool) bool {
	name := r.Tool
	if !exact {
		name, _ = canonical(r.Tool)
	}
	switch name {
	case "Read":
		return tool == "Glob" || tool == "Grep" || tool == "LS"
	case "Edit":
		return tool == "Write"
	}
	return false
}

// touches reports whether any part of a call is what a deny or ask rule is about.
// What cannot be read might be: then the rule holds, and says why.
func (r Rule) touches(req *call) (why string, ok bool) {
	name, _ := canonical(req.Tool)
	if name == "" {
		name = req.Tool
	}
	if !strings.EqualFold(r.Tool, name) && !r.server(name) && !(r.Scoped && r.family(name, false)) {
		return "", false
	}
	if !r.Scoped {
		return "", true
	}
	if !req.readable {
		return ": its input cannot be read", true
	}
	if name != "Bash" {
		return "", r.matches(req)
	}
	an, err := req.analysis()
	if err != nil {
		return ": the command cannot be read", true
	}
	for _, c := range an.Commands {
		if commandMatches(r.Spec, c, path.Base(c.Name)) || commandMatches(r.Spec, c, c.Name) {
			return "", true
		}
		if c.Computed && couldMatch(r.Spec, c) {
			return ": " + path.Base(c.Name) + " has arguments that are known only when it runs", true
		}
	}
	if len(an.Opaque) > 0 {
		return ": " + an.Opaque[0].Reason, true
	}
	return "", false
}

// matches holds a scoped rule of any tool but Bash against a call.
func (r Rule) matches(req *call) bool {
	switch name, _ := canonical(req.Tool); name {
	case "Task":
		return wildcard(r.Spec, req.Subagent)
	case "WebFetch":
		return check.MatchDomain(strings.TrimPrefix(r.Spec, "domain:"), hostOf(req.URL))
	}
	p, ok := req.filePath()
	return ok && matchPath(req.Request, r.Spec, p)
}

// commandMatches holds the text of a Bash rule against a command: `git *` is git
// with anything behind it or nothing, `npm run test:*` all that begins so.
func commandMatches(spec string, c check.Command, name string) bool {
	line := strings.Join(append([]string{name}, c.Args...), " ")
	if prefix, ok := strings.CutSuffix(spec, ":*"); ok {
		return line == prefix || strings.HasPrefix(line, prefix+" ")
	}
	if prefix, ok := strings.CutSuffix(spec, " *"); ok && wildcard(prefix, line) {
		return true
	}
	return wildcard(spec, line)
}

// couldMatch reports whether a command with computed arguments might be what a
// rule is about: its name is.
func couldMatch(spec string, c check.Command) bool {
	want, _, _ := strings.Cut(strings.TrimSuffix(spec, ":*"), " ")
	return wildcard(want, path.Base(c.Name))
}

// wildcard matches `*` with any text.
func wildcard(pattern, s string) bool {
	head, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == s
	}
	s, ok := strings.CutPrefix(s, head)
	if !ok {
		return false
	}
	for {
		part, more, wild := strings.Cut(rest, "*")
		if !wild {
			return strings.HasSuffix(s, part)
		}
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s, rest = s[i+len(part):], more
	}
}

// matchPath holds a pattern of paths against an absolute path: `**` is any number
// of directories; without a slash it is a name anywhere; two slashes at the
// beginning are one.
func matchPath(req Request, pattern, p string) bool {
	switch {
	case strings.HasPrefix(pattern, "~/"):
		pattern = req.home() + pattern[1:]
	case !strings.Contains(pattern, "/"):
		pattern = "/**/" + pattern
	case strings.HasPrefix(pattern, "**/"):
		pattern = "/" + pattern
	case strings.HasPrefix(pattern, "//"):
		pattern = pattern[1:]
	case relative(pattern):
		pattern = path.Join(req.cwd(), pattern)
	}
	// A tree includes the directory at its top.
	if root, ok := strings.CutSuffix(pattern, "/**"); ok && segments(strings.Split(root, "/"), strings.Split(p, "/")) {
		return true
	}
	return segments(strings.Split(pattern, "/"), strings.Split(p, "/"))
}

func segments(pattern, p []string) bool {
	for len(pattern) > 0 {
		if pattern[0] == "**" {
			for i := range len(p) + 1 {
				if segments(pattern[1:], p[i:]) {
					return true
				}
			}
			return false
		}
		if len(p) == 0 {
			return false
		}
		if ok, err := path.Match(pattern[0], p[0]); err != nil || !ok {
			return false
		}
		pattern, p = pattern[1:], p[1:]
	}
	return len(p) == 0
}
