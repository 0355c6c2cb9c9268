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

// ParseRule reads a rule; a rule that could never match is invalid. A rule may name the
// standard tools and those of more.
func ParseRule(s string, more ...Tool) (Rule, error) {
	r, known, err := parseRule(s, more)
	if err == nil && !known {
		return Rule{}, badRule(s, "there is no such tool")
	}
	return r, err
}

// CheckRule refuses text that is not a rule under any set of registered tools.
// ParseRule reads rules once the registered tools are known.
func CheckRule(s string) error {
	_, _, err := parseRule(s, nil)
	return err
}

// parseRule reads a rule; known: it names a registered tool, or a server's.
func parseRule(s string, set tools) (r Rule, known bool, err error) {
	text := strings.TrimSpace(s)
	tool, rest, scoped := strings.Cut(text, "(")
	r = Rule{Tool: tool, Scoped: scoped}
	if scoped {
		spec, closed := strings.CutSuffix(rest, ")")
		if !closed {
			return Rule{}, false, badRule(s, "the parenthesis is not closed")
		}
		r.Spec = spec
	}
	t, known := set.find(tool)
	switch {
	case text == "":
		return Rule{}, false, badRule(s, "it is empty")
	case serverTool(tool) && (scoped || strings.Trim(strings.TrimPrefix(tool, "mcp__"), "_*") == ""):
		return Rule{}, false, badRule(s, "a rule for a server's tools is mcp__server or mcp__server__tool")
	case serverTool(tool):
		return r, true, nil
	case !toolName(tool):
		return Rule{}, false, badRule(s, "there is no such tool")
	case scoped && strings.TrimSpace(r.Spec) == "":
		return Rule{}, false, badRule(s, "nothing stands in the parentheses")
	case !scoped || !known:
		return r, known, nil
	}
	if err := t.checkSpec(s, r.Spec); err != nil {
		return Rule{}, false, err
	}
	return r, true, nil
}

// checkSpec refuses parentheses that would never match a use of the tool.
func (t Tool) checkSpec(s, spec string) error {
	switch t.Subject {
	case SubjectCommand, SubjectName:
		return nil
	case SubjectPath:
		if _, err := path.Match(strings.ReplaceAll(spec, "**", "*"), ""); err != nil {
			return badRule(s, "it is not a pattern of paths")
		}
		if dir, ok := strings.CutSuffix(spec, "/"); ok && spec != "/" {
			return badRule(s, "no path ends in a slash; "+dir+"/** is what lies below it")
		}
		if strings.Contains(spec[1:], "//") || !relative(spec) && slices.ContainsFunc(strings.Split(spec, "/"), func(p string) bool { return p == "." || p == ".." }) {
			return badRule(s, "no path looks like that once it is resolved")
		}
		return nil
	case SubjectURL:
		domain, ok := strings.CutPrefix(spec, "domain:")
		if !ok || !check.ValidDomain(domain) {
			return badRule(s, "write WebFetch(domain:example.com)")
		}
		return nil
	}
	return badRule(s, t.Name+" takes no parentheses")
}

func badRule(s, why string) error {
	return holdfast.Errorf(holdfast.KindInvalid, "rule", "%s: %s", holdfast.Quote(s), why).
		WithHint("use a tool's name, or one with its uses, as Bash(git *) or Read(/etc/**)")
}

// OfPaths reports whether the parentheses hold a pattern of paths, for a rule that was
// parsed with the same tools.
func (r Rule) OfPaths(more ...Tool) bool {
	t, _ := tools(more).find(r.Tool)
	return r.Scoped && t.Subject == SubjectPath
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

// ParseRules reads three lists of rules, as ParseRule does; the error names list and
// place.
func ParseRules(allow, asks, denies []string, more ...Tool) (RuleSet, error) {
	var out RuleSet
	for _, l := range []struct {
		field string
		in    []string
		out   *[]Rule
	}{{"allow", allow, &out.Allow}, {"ask", asks, &out.Ask}, {"deny", denies, &out.Deny}} {
		for i, s := range l.in {
			r, err := ParseRule(s, more...)
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

// Rules turns a rule set into a policy: deny, then ask, then allow. The rules may name
// the standard tools and those of more.
func Rules(s RuleSet, more ...Tool) Policy {
	return Func(func(ctx context.Context, req Request) (Decision, error) {
		c := newCall(ctx, req, more)
		return c.judged(new(Trace), func() Decision {
			for _, stage := range []func(*call) Decision{(*call).outsized, s.denies, s.asks, s.allows} {
				if d := stage(c); d.Verdict != NoOpinion {
					return d
				}
			}
			return Decision{}
		})
	})
}

func (s RuleSet) denies(c *call) Decision {
	for _, r := range s.Deny {
		if why, ok := r.touches(c); ok {
			return Decision{Verdict: Denied, By: "deny rule", Rule: r.String(), Reason: "the rule " + r.String() + " denies it" + why}
		}
	}
	return Decision{}
}

func (s RuleSet) asks(c *call) Decision {
	for _, r := range s.Ask {
		if why, ok := r.touches(c); ok {
			return Decision{Verdict: Asked, By: "ask rule", Rule: r.String(), Reason: "the rule " + r.String() + " wants it asked" + why}
		}
	}
	return Decision{}
}

// allows holds only if every part of the call is allowed by some rule.
func (s RuleSet) allows(c *call) Decision {
	rules := slices.DeleteFunc(slices.Clone(s.Allow), func(r Rule) bool { return !r.about(c) })
	if len(rules) == 0 {
		return Decision{}
	}
	yes := func(r Rule) Decision { return Decision{Verdict: Allowed, By: "allow rule", Rule: r.String()} }
	for _, r := range rules {
		if !r.Scoped || c.tool.Subject != SubjectCommand && r.matches(c) {
			return yes(r)
		}
	}
	if c.tool.Subject != SubjectCommand || !c.readable {
		return Decision{}
	}
	an, err := c.analysis()
	if err != nil || len(an.Opaque)+len(an.Unsure) > 0 || len(an.Commands) == 0 {
		return Decision{}
	}
	for _, red := range an.Redirects {
		if red.Writes && red.Path != "/dev/null" {
			return Decision{}
		}
	}
	// The rule that is named is that of the first command.
	first := -1
	for _, cmd := range an.Commands {
		if cmd.Lent {
			continue // the rule for npx is about what npx runs
		}
		i := slices.IndexFunc(rules, func(r Rule) bool {
			c.clock.tick()
			return r.names(cmd) && commandMatches(r.Spec, cmd, cmd.Name)
		})
		if i < 0 {
			return Decision{}
		}
		if first < 0 {
			first = i
		}
	}
	return yes(rules[first])
}

// names reports whether an allow rule may match a command. A rule with a name matches
// the program in the search path; a command given as a path needs a rule with that very
// path, from the same directory.
func (r Rule) names(c check.Command) bool {
	if c.Name == path.Base(c.Name) {
		return true
	}
	first, _, _ := strings.Cut(strings.TrimSuffix(r.Spec, ":*"), " ")
	return first == c.Name && (c.Here || strings.HasPrefix(c.Name, "/"))
}

// server reports whether a rule means a server's tool.
func (r Rule) server(tool string) bool {
	if !serverTool(r.Tool) || !serverTool(tool) {
		return false
	}
	tool = strings.ToLower(tool)
	name := strings.TrimSuffix(strings.ToLower(r.Tool), "__*")
	return tool == strings.ToLower(r.Tool) || name == tool || strings.HasPrefix(tool, name+"__")
}

// about reports whether a rule means the tool of a call, ignoring case: by its name, as
// a tool of a server, or as one of a family.
func (r Rule) about(c *call) bool {
	return strings.EqualFold(r.Tool, c.req.Tool) || r.server(c.req.Tool) || r.family(c.tool)
}

// family reports whether a rule for one file tool applies to another one too: a rule
// for Read applies to all that read paths, a rule for Edit to all that edit them.
func (r Rule) family(t Tool) bool {
	switch {
	case t.Subject != SubjectPath:
		return false
	case t.Class == ClassReads:
		return strings.EqualFold(r.Tool, "Read")
	}
	return t.Class == ClassEdits && strings.EqualFold(r.Tool, "Edit")
}

// touches reports whether any part of a call is what a deny or ask rule is about.
// What cannot be read might be: then the rule holds, and says why.
func (r Rule) touches(c *call) (why string, ok bool) {
	if !r.about(c) || !r.Scoped && r.family(c.tool) && !strings.EqualFold(r.Tool, c.req.Tool) {
		return "", false
	}
	if !r.Scoped {
		return "", true
	}
	if !c.readable {
		return ": its input cannot be read", true
	}
	if c.tool.Subject != SubjectCommand {
		return "", r.matches(c)
	}
	an, err := c.analysis()
	if err != nil {
		return ": the command cannot be read: " + err.Error(), true
	}
	for _, cmd := range an.Commands {
		c.clock.tick()
		if commandMatches(r.Spec, cmd, path.Base(cmd.Name)) || commandMatches(r.Spec, cmd, cmd.Name) {
			return "", true
		}
		if bare := cmd; cmd.Bare != nil {
			if bare.Args = cmd.Bare; commandMatches(r.Spec, bare, path.Base(cmd.Name)) {
				return "", true
			}
		}
		if cmd.Computed && couldMatch(r.Spec, cmd) {
			return ": " + path.Base(cmd.Name) + " has arguments that are known only when it runs", true
		}
	}
	if len(an.Opaque) > 0 {
		return ": " + an.Opaque[0].Reason, true
	}
	return "", false
}

// matches holds a scoped rule of any tool but Bash against a call.
func (r Rule) matches(c *call) bool {
	switch c.tool.Subject {
	case SubjectName:
		// A rule may leave out where a name comes from: Skill(review) is about agent:review.
		return wildcard(r.Spec, c.Name) || wildcard(r.Spec, c.Name[strings.LastIndexByte(c.Name, ':')+1:])
	case SubjectURL:
		return check.MatchDomain(strings.TrimPrefix(r.Spec, "domain:"), hostOf(c.URL))
	}
	c.clock.tick()
	p, ok := c.filePath()
	return ok && matchPath(c.req, r.Spec, p)
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
	if len(p) > maxResolved {
		return false // nothing opens it
	}
	pattern = absolutePattern(pattern, req.home(), req.cwd())
	// A tree includes the directory at its top.
	if root, ok := strings.CutSuffix(pattern, "/**"); ok && segments(strings.Split(root, "/"), strings.Split(p, "/")) {
		return true
	}
	return segments(strings.Split(pattern, "/"), strings.Split(p, "/"))
}
