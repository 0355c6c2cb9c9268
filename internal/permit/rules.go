package engine

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// maxRules bounds the rules of a session and those of a workspace: hooks can add
// some, too.
const maxRules = 1000

// ruleKey is whose rules those of a scope are. A private workspace goes by its
// session.
func ruleKey(row journal.Row, _ holdfast.ApprovalScope) string { return string(row.ID) }

// ruleScopes are those whose rules are kept.
var ruleScopes = [...]holdfast.ApprovalScope{holdfast.ScopeWorkspace, holdfast.ScopeSession} //nolint:gochecknoglobals // a list

// ruleRows are the rules that answers, hooks and persons left for a session and its
// workspace.
func (e *Engine) ruleRows(ctx context.Context, row journal.Row) ([]journal.Rule, error) {
	var out []journal.Rule
	var asked []string
	for _, scope := range ruleScopes {
		key := ruleKey(row, scope)
		if slices.Contains(asked, key) {
			continue
		}
		list, err := e.cfg.Store.Rules(ctx, key)
		if err != nil {
			return nil, err
		}
		asked, out = append(asked, key), append(out, list...)
	}
	return out, nil
}

// applied is a list of rules after changes, as the store will have it.
func applied(list []journal.Rule, changes []journal.RuleChange) []journal.Rule {
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

// roomForRules refuses rules beyond what a session or workspace may have.
func (e *Engine) roomForRules(ctx context.Context, scope holdfast.ApprovalScope, key string, more int) error {
	list, err := e.cfg.Store.Rules(ctx, key)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(r journal.Rule) bool { return r.Scope != scope })
	if len(list)+more > maxRules {
		return holdfast.Errorf(holdfast.KindTooLarge, "rules", "the %s has %d rules, at most %d are kept", scope, len(list), maxRules).
			WithHint("answer once, or name a rule that covers more")
	}
	return nil
}
