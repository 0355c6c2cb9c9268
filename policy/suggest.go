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
	// maxSuggestions bounds the rules that are suggested together, maxSuggestion the bytes
	// of each: a person has to read them.
	maxSuggestions = 8
	maxSuggestion  = 300
	// maxParts bounds the commands that are looked at, also those that need no rule.
	maxParts = 64
)

// Suggest returns the rules that an answer would have to grant for the asked call to
// pass: none that could be left out, and each says as little besides the call as a rule
// can. A compound command needs one for each of its commands that no rule allows yet.
// Nil: there are none, because the call does something that rules do not show, such as a
// redirection, or because a rule would allow more than it says to a person.
func (e *Engine) Suggest(ctx context.Context, req Request, asked Decision) []string {
	c := newCall(ctx, req, e.tools)
	var out []string
	d, err := c.judged(new(Trace), func() Decision {
		out = e.suggest(c, e.lifts(asked))
		return Decision{}
	})
	if err != nil || d.Verdict != NoOpinion {
		return nil // it took too long
	}
	return out
}

// lifts are the rules that let a call pass that would be asked for: the granted ones.
// Where only the mode asks, the standing allow rules count as well: of a compound command
// they may cover the parts that no grant covers.
func (e *Engine) lifts(asked Decision) RuleSet {
	if !asked.byMode {
		return e.granted
	}
	return RuleSet{Allow: slices.Concat(e.granted.Allow, e.rules.Allow)}
}

func (e *Engine) suggest(c *call, have RuleSet) []string {
	// What is no plain use gets no rule. Then the rest has to pass without it.
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

// uses are the rules for the uses of tools that a call consists of, but for those that
// would read otherwise than they are.
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

// commands are the commands of a call that read as themselves, each once; nil if the call
// does more than its commands show.
func (c *call) commands() []string {
	an, err := c.analysis()
	if err != nil || len(an.Opaque)+len(an.Unsure) > 0 || an.MoreThanCommands {
		return nil
	}
	var out []string
	for _, cmd := range an.Commands {
		if cmd.Lent {
			continue // the rule for npx is about what npx runs
		}
		text := strings.Join(append([]string{cmd.Name}, cmd.Args...), " ")
		if !slices.Contains(out, text) && len(text) <= maxSuggestion && c.readsAs(text, cmd) {
			out = append(out, text)
		}
	}
	return out
}

// readsAs reports whether a text, read as a program, is one command and no other. Without
// its quotes a command may read otherwise: a person would agree to `echo a b` and not to
// an argument with a blank in it.
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

// plainUse reports whether a use of a tool means itself in a rule, and is all visible.
func plainUse(use string) bool {
	return use != "" && use == strings.TrimSpace(use) && !strings.ContainsAny(use, `*?[]\`) &&
		!strings.ContainsFunc(use, func(r rune) bool { return !unicode.IsPrint(r) })
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
