package permit

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// MaxRules bounds the rules of a session and those of a workspace: hooks can add some, too.
const MaxRules = 1000

// Key returns the key under which the store has the rules of a session's scope. A private workspace
// has the key of its session.
func Key(row journal.Row, _ holdfast.ApprovalScope) string { return string(row.ID) }

// ruleScopes are those whose rules are kept.
var ruleScopes = [...]holdfast.ApprovalScope{holdfast.ScopeWorkspace, holdfast.ScopeSession} //nolint:gochecknoglobals // a list

// Rules returns the rules that answers, hooks and persons left for a session and its workspace.
func (p *Policies) Rules(ctx context.Context, row journal.Row) ([]journal.Rule, error) {
	var out []journal.Rule
	var asked []string
	for _, scope := range ruleScopes {
		key := Key(row, scope)
		if slices.Contains(asked, key) {
			continue
		}
		list, err := p.from.Rules(ctx, key)
		if err != nil {
			return nil, err
		}
		asked, out = append(asked, key), append(out, list...)
	}
	return out, nil
}

// Applied returns a list of rules with changes made to it, as the store will have it.
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

// Room returns the key under which the rules of a session's scope are kept. It refuses, as too_large,
// more rules than a session or workspace may have.
func (p *Policies) Room(ctx context.Context, row journal.Row, scope holdfast.ApprovalScope, more int) (key string, err error) {
	key = Key(row, scope)
	list, err := p.from.Rules(ctx, key)
	if err != nil {
		return key, err
	}
	list = slices.DeleteFunc(list, func(r journal.Rule) bool { return r.Scope != scope })
	if len(list)+more > MaxRules {
		return key, holdfast.Errorf(holdfast.KindTooLarge, "rules", "the %s has %d rules, at most %d are kept", scope, len(list), MaxRules).
			WithHint("answer once, or name a rule that covers more")
	}
	return key, nil
}
