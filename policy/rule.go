package policy

import (
	"context"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// Rule is a tool, or some uses of it: Bash, Bash(git *), Read(~/.ssh/**),
// WebFetch(domain:example.com), mcp__server, mcp__server__tool.
type Rule struct {
	// Tool is the tool's name as written, Spec the text in parentheses. Scoped is true if the
	// rule has parentheses.
	Tool, Spec string
	Scoped     bool
}

// ParseRule parses a rule. A rule that could never match is invalid. A rule may name the
// standard tools and the tools in more.
func ParseRule(s string, more ...Tool) (Rule, error) {
	r, known, err := parseRule(s, more)
	if err == nil && !known {
		return Rule{}, badRule(s, "there is no such tool")
	}
	return r, err
}

// CheckRule returns an error for text that is not a rule, whichever tools are registered.
// It is for rules that are checked before the registered tools are known; ParseRule
// checks them fully.
func CheckRule(s string) error {
	_, _, err := parseRule(s, nil)
	return err
}

// parseRule parses a rule. known is true if the rule names a registered tool or a tool of an
// MCP server.
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
		if next := nextRule.FindStringSubmatch(spec); next != nil {
			if _, is := set.find(next[1]); is {
				return Rule{}, false, badRule(s, "it holds several rules; write each by itself")
			}
		}
	}
	t, known := set.find(tool)
	switch {
	case text == "":
		return Rule{}, false, badRule(s, "it is empty")
	case serverTool(tool) && (scoped || strings.Trim(strings.TrimPrefix(tool, "mcp__"), "_*") == ""):
		return Rule{}, false, badRule(s, "rules for tools of an MCP server have the form mcp__server or mcp__server__tool")
	case serverTool(tool):
		return r, true, nil
	case !toolName(tool):
		return Rule{}, false, badRule(s, "there is no such tool")
	case scoped && strings.TrimSpace(r.Spec) == "":
		return Rule{}, false, badRule(s, "its parentheses are empty")
	case !scoped || !known:
		return r, known, nil
	}
	if err := t.checkSpec(s, r.Spec); err != nil {
		return Rule{}, false, err
	}
	return r, true, nil
}

// nextRule matches where one rule ends and another one begins, with the name of its tool, in a text
// that holds several rules. Such a text, parsed as one rule, would match nothing.
var nextRule = regexp.MustCompile(`\)[\s,;]*([A-Za-z_]\w*)\(`)

// checkSpec refuses text in parentheses that could never match a use of the tool.
func (t Tool) checkSpec(s, spec string) error {
	switch t.Subject {
	case SubjectCommand, SubjectName:
		return nil
	case SubjectPath:
		for _, segment := range strings.Split(spec, "/") {
			if _, err := path.Match(segment, ""); err != nil {
				return badRule(s, "the text in parentheses is not a valid path pattern")
			}
		}
		if dir, ok := strings.CutSuffix(spec, "/"); ok && spec != "/" {
			return badRule(s, "no path ends in a slash; "+dir+"/** matches everything below it")
		}
		if strings.Contains(spec[1:], "//") || !relative(spec) && slices.ContainsFunc(strings.Split(spec, "/"), func(p string) bool { return p == "." || p == ".." }) {
			return badRule(s, "it can never match, because resolved paths contain no //, . or ..")
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
	return holdfast.Errorf(holdfast.KindInvalid, "rule", "%s is not a valid rule: %s", holdfast.Quote(s), why).
		WithHint("use a tool's name, or a tool's name with a pattern, as Bash(git *) or Read(/etc/**)")
}

// OfPaths reports whether the rule has parentheses that hold a path pattern. more are the
// tools that the rule was parsed with.
func (r Rule) OfPaths(more ...Tool) bool {
	t, _ := tools(more).find(r.Tool)
	return r.Scoped && t.Subject == SubjectPath
}

// relative reports whether a path pattern is relative to the tools' working directory.
func relative(pattern string) bool {
	return strings.Contains(pattern, "/") && !strings.HasPrefix(pattern, "/") && !strings.HasPrefix(pattern, "~/") && !strings.HasPrefix(pattern, "**/")
}

func (r Rule) String() string {
	if r.Scoped {
		return r.Tool + "(" + r.Spec + ")"
	}
	return r.Tool
}

// RuleSet holds rules in three lists: rules that allow, ask and deny.
type RuleSet struct{ Allow, Ask, Deny []Rule }

// ParseRules parses three lists of rules with ParseRule. Its error names the list and the
// index of the invalid rule.
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

// Add adds a rule to the list that behavior names: allow, ask, deny or grant. With an
// unknown behavior the rule is added to the deny rules.
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

// Rules returns a policy that applies the deny rules, then the ask rules, then the allow
// rules. The rules may name the standard tools and the tools in more.
func Rules(s RuleSet, more ...Tool) Policy {
	return Func(func(ctx context.Context, req Request) (Decision, error) {
		c := newCall(ctx, req, more)
		return c.judged(new(Trace), func() Decision {
			for _, stage := range []func(*call) Decision{(*call).bounds, s.denies, s.asks, s.allows} {
				if d := stage(c); d.Verdict != NoOpinion {
					return d
				}
			}
			return Decision{}
		})
	})
}

func (s RuleSet) denies(c *call) Decision {
	return touching(c, s.Deny, Rule.forbids, Decision{Verdict: Denied, By: "deny rule"}, "denies it")
}

func (s RuleSet) asks(c *call) Decision {
	return touching(c, s.Ask, Rule.applies, Decision{Verdict: Asked, By: "ask rule"}, "requires approval")
}

// touching returns d, with rule and reason set, for the first rule that is about the call's tool and touches the call.
func touching(c *call, rules []Rule, about func(Rule, *call) bool, d Decision, does string) Decision {
	for _, r := range rules {
		if !about(r, c) {
			continue
		}
		if why, ok := r.touches(c, d.Verdict); ok {
			d.Rule, d.Reason = r.String(), "the rule "+r.String()+" "+does+why
			return d
		}
	}
	return Decision{}
}

// allows returns Allowed only if every part of the call is allowed by some rule, else no
// opinion.
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
	// The decision names the rule that allows the first command.
	first := -1
	for _, cmd := range an.Commands {
		if cmd.Lent {
			continue // a launcher such as npx: a rule must allow the command that it runs
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

// server reports whether the rule names the MCP server of a tool, or exactly that tool of the
// server.
func (r Rule) server(tool string) bool {
	if !serverTool(r.Tool) || !serverTool(tool) {
		return false
	}
	tool = strings.ToLower(tool)
	name := strings.TrimSuffix(strings.ToLower(r.Tool), "__*")
	return tool == strings.ToLower(r.Tool) || name == tool || strings.HasPrefix(tool, name+"__")
}

// about reports whether the rule applies to the tool of a call, ignoring case: it names the
// tool, the tool's MCP server, or the tool's family (see family).
func (r Rule) about(c *call) bool {
	return strings.EqualFold(r.Tool, c.req.Tool) || r.server(c.req.Tool) || r.family(c.tool)
}

// family reports whether the rule applies to a file tool because of what the tool does: a
// rule for Read applies to all tools that read paths, a rule for Edit to all that edit files.
func (r Rule) family(t Tool) bool {
	switch {
	case t.Subject != SubjectPath:
		return false
	case t.Class == ClassReads:
		return strings.EqualFold(r.Tool, "Read")
	}
	return t.Class == ClassEdits && strings.EqualFold(r.Tool, "Edit")
}

// applies reports whether a deny or ask rule is about the tool of a call. A rule for a whole family, such as Edit without
// parentheses, is about the tool of that name alone.
func (r Rule) applies(c *call) bool {
	return r.about(c) && (r.Scoped || !r.family(c.tool) || strings.EqualFold(r.Tool, c.req.Tool))
}

// forbids is like applies, but a deny rule for Read with a path is also about tools that edit: see Scope.
func (r Rule) forbids(c *call) bool {
	return r.applies(c) || r.Scoped && c.tool.Subject == SubjectPath && r.keepsFrom(c.tool)
}

// touches reports whether a rule that denies or asks, and is about the tool of a call, matches any part of the call, or a
// directory above its file. A part that cannot be read might match: then the rule touches the call, and why says what
// could not be read.
func (r Rule) touches(c *call, v Verdict) (why string, ok bool) {
	if !r.Scoped {
		return "", true
	}
	if !c.readable {
		return ": its input cannot be read", true
	}
	switch c.tool.Subject {
	case SubjectCommand:
	case SubjectPath:
		return r.touchesFile(c, v)
	default:
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

// touchesFile does for file tools what touches does. A search also reads the directories below the one that it names:
// a rule without wildcards touches the search there, unless the rule denies and something else keeps the search out,
// that is, the call's Scope or the walls of a box.
func (r Rule) touchesFile(c *call, v Verdict) (why string, ok bool) {
	c.clock.tick()
	p, ok := c.filePath()
	if !ok {
		return ": the call names no file", true
	}
	root, wild := treeOf(absolutePattern(r.Spec, c.req.home(), c.req.cwd()))
	dir, searches := c.searched(p)
	if matchPath(c.req, root+"/**", p) || dir != p && matchPath(c.req, root+"/**", dir) {
		return "", true
	}
	kept := v == Denied && (!c.req.Unscoped || c.req.Sandboxed && strings.EqualFold(r.Tool, "Read"))
	if searches && !wild && !kept && below(root, dir) {
		return ": the search would go through " + root, true
	}
	return "", false
}

// matches reports whether the rule's parentheses match a call of any tool but Bash.
func (r Rule) matches(c *call) bool {
	switch c.tool.Subject {
	case SubjectName:
		// A rule may leave out the prefix of a name: Skill(review) also matches agent:review.
		return wildcard(r.Spec, c.Name) || wildcard(r.Spec, c.Name[strings.LastIndexByte(c.Name, ':')+1:])
	case SubjectURL:
		return check.MatchDomain(strings.TrimPrefix(r.Spec, "domain:"), hostOf(c.URL))
	}
	c.clock.tick()
	p, ok := c.filePath()
	return ok && matchPath(c.req, r.Spec, p)
}

// commandMatches reports whether the text of a Bash rule matches a command: `git *` matches
// git with or without arguments, `npm run test:*` each command that begins with these words.
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

// couldMatch reports whether a command whose arguments are computed at run time might match
// a rule: it does if the command's name matches.
func couldMatch(spec string, c check.Command) bool {
	want, _, _ := strings.Cut(strings.TrimSuffix(spec, ":*"), " ")
	return wildcard(want, path.Base(c.Name))
}

// wildcard reports whether s matches a pattern in which `*` stands for any text.
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

// matchPath reports whether an absolute path matches a path pattern: `**` matches any number
// of directories; a pattern without a slash matches that name in any directory; two slashes
// at the beginning mean one.
func matchPath(req Request, pattern, p string) bool {
	if len(p) > maxResolved {
		return false // no system call can open a path of this length
	}
	pattern = absolutePattern(pattern, req.home(), req.cwd())
	// A pattern dir/** also matches dir itself.
	if root, ok := strings.CutSuffix(pattern, "/**"); ok && segments(strings.Split(root, "/"), strings.Split(p, "/")) {
		return true
	}
	return segments(strings.Split(pattern, "/"), strings.Split(p, "/"))
}
