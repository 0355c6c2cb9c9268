package policy

import (
	"context"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/holdfast-run/holdfast/sandbox/check"
)

const (
	// maxSuggestions is how many rules are suggested together, maxSuggestion how many bytes
	// each may have: a person has to read them.
	maxSuggestions = 8
	maxSuggestion  = 300
	// maxParts is how many commands of a call are examined, including those that need no rule.
	maxParts = 64
)

// Suggest returns a set of rules that, once granted, let a call pass for which a person is being asked; without any one
// of them the call would not pass. Each rule is as narrow as possible. A compound command needs one rule for each of
// its commands that no rule allows yet. Suggest returns nil if rules cannot cover the call: it does something that
// rules do not show, such as a redirection, or a rule would allow more than a person would expect from its text.
func (e *Engine) Suggest(ctx context.Context, req Request, asked Decision) []string {
	c := newCall(ctx, req, e.tools)
	var out []string
	d, err := c.judged(new(Trace), func() Decision {
		out = e.suggest(c, e.lifts(asked))
		return Decision{}
	})
	if err != nil || d.Verdict != NoOpinion {
		return nil // the time for judging ran out
	}
	return out
}

// lifts returns the rules that can let a call pass for which the decision asked requires a person's
// answer: the granted rules. If only the permission mode asks, the standing allow rules count as
// well, so that they can cover the parts of a compound command that no grant covers.
func (e *Engine) lifts(asked Decision) RuleSet {
	if !asked.byMode {
		return e.granted
	}
	return RuleSet{Allow: slices.Concat(e.granted.Allow, e.rules.Allow)}
}

func (e *Engine) suggest(c *call, have RuleSet) []string {
	// Uses with pattern or invisible characters get no rule. Below it is checked whether the other rules suffice.
	var need []Rule
	for _, text := range c.uses() {
		rule, err := e.ParseRule(text)
		if err != nil {
			return nil
		}
		need = append(need, rule)
	}
	passes := func(rules []Rule) bool {
		return RuleSet{Allow: slices.Concat(have.Allow, rules)}.allows(c).Verdict == Allowed
	}
	if len(need) == 0 || !passes(need) {
		return nil
	}
	for i := len(need) - 1; i >= 0; i-- {
		if less := slices.Delete(slices.Clone(need), i, i+1); passes(less) {
			need = less
		}
	}
	if len(need) > maxSuggestions {
		return nil
	}
	var out []string
	for _, rule := range need {
		text := rule.String()
		if len(text) > maxSuggestion {
			return nil
		}
		out = append(out, text)
	}
	return out
}

// uses returns the text of one rule for each use of a tool in the call, without those whose
// text a person or the rule parser would read differently.
func (c *call) uses() []string {
	if !c.readable {
		return nil
	}
	var uses []string
	name := c.tool.Name
	switch c.tool.Subject {
	case SubjectNone:
		return []string{c.req.Tool}
	case SubjectCommand:
		if uses = c.commands(); len(uses) > maxParts {
			return nil
		}
	case SubjectURL:
		if u, err := url.Parse(c.URL); err == nil && u.Hostname() != "" {
			uses = []string{"domain:" + u.Hostname()}
		}
	case SubjectName:
		uses = []string{c.Name}
	case SubjectPath:
		uses = []string{exactPath(c.Path)}
		if name = "Read"; c.tool.Class == ClassEdits {
			name = "Edit"
		}
	}
	var out []string
	for _, use := range uses {
		if plainUse(use) {
			out = append(out, name+"("+use+")")
		}
	}
	return out
}

// commands returns the distinct commands of a call, without those whose unquoted text means
// another command; nil if the call does more than its commands show.
func (c *call) commands() []string {
	an, err := c.analysis()
	if err != nil || len(an.Opaque)+len(an.Unsure) > 0 || an.MoreThanCommands {
		return nil
	}
	var out []string
	for _, cmd := range an.Commands {
		if cmd.Lent {
			continue // a launcher such as npx: a rule must allow the command that it runs
		}
		text := strings.Join(append([]string{cmd.Name}, cmd.Args...), " ")
		if !slices.Contains(out, text) && len(text) <= maxSuggestion && c.readsAs(text, cmd) {
			out = append(out, text)
		}
	}
	return out
}

// readsAs reports whether text, parsed as a shell program, is exactly the command cmd. Without
// its quotes a command may mean something else: a person who agrees to `echo a b` does not
// agree to one argument that contains a blank.
func (c *call) readsAs(text string, cmd check.Command) bool {
	an, err := check.AnalyzeWithin(c.clock.ended, text, c.req.cwd(), c.req.home())
	if err != nil {
		if c.clock.ended() != nil {
			panic(outOfTime{c.clock.ended()})
		}
		return false
	}
	if an.MoreThanCommands || len(an.Commands) == 0 || cmd.Computed {
		return false
	}
	first := an.Commands[0]
	return !first.Computed && first.Name == cmd.Name && slices.Equal(first.Args, cmd.Args)
}

// plainUse reports whether a use of a tool, as the text of a rule, matches only itself (it has
// no pattern characters) and consists of visible characters.
func plainUse(use string) bool {
	return use != "" && use == strings.TrimSpace(use) && !strings.ContainsAny(use, `*?[]\`) &&
		!strings.ContainsFunc(use, func(r rune) bool { return !unicode.IsPrint(r) })
}

// exactPath returns p in a form that a rule matches with that path alone. A bare name gets
// the prefix ./, because as a rule it would match that name in any directory.
func exactPath(p string) string {
	switch {
	case p == "":
		return ""
	case strings.HasPrefix(p, "/"), strings.HasPrefix(p, "~/"):
		return path.Clean(p)
	}
	return "./" + path.Clean(p)
}
