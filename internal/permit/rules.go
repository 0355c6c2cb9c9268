package permit

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/policy"
)

// MaxRules is how many rules answers may add to a session, and to a workspace. Hooks and the policy may add rules
// until the session and its workspace together have 2*MaxRules.
const MaxRules = 1000

// Key returns the key under which the store keeps the rules of a session in a scope. A session without a
// workspace has its id as key for both scopes.
func Key(row journal.Row, scope holdfast.ApprovalScope) string {
	if scope == holdfast.ScopeWorkspace && row.Workspace != "" {
		return journal.WorkspaceKey(row.Workspace)
	}
	return string(row.ID)
}

// ruleScopes are the scopes of the rules that answers, hooks and the policy add.
var ruleScopes = [...]holdfast.ApprovalScope{holdfast.ScopeWorkspace, holdfast.ScopeSession} //nolint:gochecknoglobals // a list

// Rules returns the rules of a session and its workspace that hold for the session. It leaves out an allow rule that an
// answer, a hook or the policy added in a session of lower trust (I-48): that rule was meant for tools in a box.
func (p *Policies) Rules(ctx context.Context, row journal.Row) ([]journal.Rule, error) {
	list, err := p.stored(ctx, row)
	return slices.DeleteFunc(list, func(r journal.Rule) bool {
		return !r.Tightens() && added(r) && below(r, row)
	}), err
}

// added reports whether an answer, a hook or the policy added a rule. All other rules come from settings or bind a fork.
func added(r journal.Rule) bool { return slices.Contains(ruleScopes[:], r.Scope) }

// Added returns the rules that answers, hooks and the policy added to a session and its workspace.
func (p *Policies) Added(ctx context.Context, row journal.Row) ([]journal.Rule, error) {
	list, err := p.stored(ctx, row)
	return slices.DeleteFunc(list, func(r journal.Rule) bool { return !added(r) }), err
}

// below reports whether a rule was added at a lower trust than the session's.
func below(r journal.Rule, row journal.Row) bool {
	return row.Trust.Exceeds(cmp.Or(r.Trust, holdfast.Untrusted))
}

// stored returns all stored rules of a session and its workspace, and those that bind a fork.
func (p *Policies) stored(ctx context.Context, row journal.Row) ([]journal.Rule, error) {
	return stored(ctx, p.from, row)
}

// rules is a store of rules, by key.
type rules interface {
	Rules(ctx context.Context, key string) ([]journal.Rule, error)
}

func stored(ctx context.Context, from rules, row journal.Row) ([]journal.Rule, error) {
	var out []journal.Rule
	var asked []string
	for _, scope := range ruleScopes {
		key := Key(row, scope)
		if slices.Contains(asked, key) {
			continue
		}
		list, err := from.Rules(ctx, key)
		if err != nil {
			return nil, err
		}
		asked, out = append(asked, key), append(out, list...)
	}
	if row.Given.Bounds == nil {
		return out, nil
	}
	for _, behavior := range [...]string{"allow", "ask", "deny"} {
		for _, rule := range row.Given.Bounds.Rules[behavior] {
			out = append(out, journal.Rule{Scope: boundScope, Key: string(row.ID), Behavior: behavior, Rule: rule, Source: "fork"})
		}
	}
	return out, nil
}

// boundScope is the scope of rules that bind a fork, which no answer, hook or agent can change.
const boundScope holdfast.ApprovalScope = "fork"

// gitRules are rules for the files of a repository that the git of the host runs or obeys. Whoever writes these files
// runs programs on the host as soon as the host's user calls git in the workspace.
var gitRules = [...]string{"Edit(.git/hooks/**)", "Edit(.git/config)"} //nolint:gochecknoglobals // a list

// lentGitRule is the rule for a directory of the user's own. It denies writing to any file in .git, because commondir,
// submodules, worktrees and entries that the index calls submodules name further configurations (ADR 0099).
const lentGitRule = "Edit(.git/**)"

// gitOfHost returns the policy layer that protects the git of the host from a session in a workspace: it denies the
// gitRules and, in a directory of the user's own, the lentGitRule, except those that p has as allow rules.
// If it denies the lentGitRule in an untrusted session, it also denies writing other paths that this git obeys.
func gitOfHost(p *policy.Engine, space Workspace, trust holdfast.Trust) (layer policy.Config) {
	rules := gitRules[:]
	if space.IsLent() {
		rules = append(rules, lentGitRule)
	}
	for _, text := range rules {
		rule, err := p.ParseRule(text)
		if err != nil {
			layer.Refuse = err.Error()
		} else if !p.Allows(rule) {
			layer.Add("deny", rule)
			if text == lentGitRule && trust == holdfast.Untrusted {
				addHeld(&layer, space)
			}
		}
	}
	return layer
}

// addHeld denies writing to the paths of a workspace that the git of the host obeys besides .git.
func addHeld(layer *policy.Config, space Workspace) {
	held, err := space.HostGit()
	if err != nil {
		layer.Refuse = err.Error()
	}
	escaped := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)
	for _, path := range held {
		layer.Add("deny", policy.Rule{Tool: "Edit", Scoped: true, Spec: "./" + escaped.Replace(path) + "/**"})
	}
}

// Applied returns a copy of a list of rules with changes applied, as the store would hold it.
func Applied(list []journal.Rule, changes []journal.RuleChange) []journal.Rule {
	out := slices.Clone(list)
	for _, c := range changes {
		at := slices.IndexFunc(out, func(r journal.Rule) bool {
			return r.Key == c.Key && r.Scope == c.Scope && r.Behavior == c.Behavior && r.Rule == c.Rule
		})
		switch {
		case c.Removed && at >= 0:
			out = slices.Delete(out, at, at+1)
		case !c.Removed && at < 0:
			out = append(out, journal.Rule{Scope: c.Scope, Key: c.Key, Behavior: c.Behavior, Rule: c.Rule, Source: c.Source})
		}
	}
	return out
}

// Room returns the key under which the rules of a session in a scope are stored. It fails with
// too_large if the session or workspace cannot hold that many more rules.
func (p *Policies) Room(ctx context.Context, row journal.Row, scope holdfast.ApprovalScope, more int) (key string, err error) {
	key = Key(row, scope)
	list, err := p.from.Rules(ctx, key)
	if err != nil {
		return key, err
	}
	list = slices.DeleteFunc(list, func(r journal.Rule) bool { return r.Scope != scope })
	if len(list)+more > MaxRules {
		return key, holdfast.Errorf(holdfast.KindTooLarge, "rules", "the %s has %d rules and cannot get %d more: at most %d are stored", scope, len(list), more, MaxRules).
			WithHint("allow this call alone, with scope once; or grant fewer rules, each of which covers more")
	}
	return key, nil
}
