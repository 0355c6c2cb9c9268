package approvals

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// AddedRules returns the rules that answers, hooks and the policy added to a session and its workspace, each scope's
// oldest rule first.
func (q *Questions) AddedRules(ctx context.Context, id holdfast.SessionID) ([]holdfast.Rule, error) {
	row, err := q.cfg.Sessions.Row(ctx, id)
	if err != nil {
		return nil, err
	}
	list, err := q.cfg.Rules.Added(ctx, row)
	out := make([]holdfast.Rule, len(list))
	for i, r := range list {
		out[i] = shown(r)
	}
	return out, err
}

func shown(r journal.Rule) holdfast.Rule {
	return holdfast.Rule{Scope: r.Scope, Behavior: r.Behavior, Rule: r.Rule, By: r.Source, Trust: r.Trust, AddedAt: r.At}
}

// RevokeRule removes an added rule that allows calls, and returns what it removed: from the session and from its
// workspace, or with a scope from that one alone. by names the caller in the log. The next call is decided without the
// rule, in the other sessions of the workspace too. It fails with not_found if no rule with that text allows calls.
func (q *Questions) RevokeRule(ctx context.Context, id holdfast.SessionID, scope holdfast.ApprovalScope, rule, by string) (revoked []holdfast.Rule, err error) {
	const op = "rules.revoke"
	if scope != "" && scope != holdfast.ScopeSession && scope != holdfast.ScopeWorkspace {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "%s is not an approval scope that keeps rules", holdfast.Quote(string(scope))).WithHint("use the scope session or workspace")
	}
	if parsed, err := q.cfg.Policy.ParseRule(rule); err == nil {
		rule = parsed.String()
	}
	_, err = q.cfg.Journal.CommitAt(ctx, id, func(row journal.Row, c *journal.Change) error {
		list, err := q.cfg.Rules.Added(ctx, row)
		if err != nil {
			return err
		}
		revoked = nil
		var changes []journal.RuleChange
		for _, r := range list {
			if r.Rule != rule || r.Tightens() || scope != "" && r.Scope != scope {
				continue
			}
			change := holdfast.RuleChange{Scope: r.Scope, Behavior: r.Behavior, Rule: r.Rule, Removed: true}
			changes = append(changes, journal.RuleChange{Key: r.Key, Source: by, RuleChange: change})
			revoked = append(revoked, shown(r))
		}
		if revoked == nil {
			return holdfast.Errorf(holdfast.KindNotFound, op, "no added rule %s allows calls of session %s", holdfast.Quote(rule), id).
				WithHint("holdfast approvals rules %s lists the added rules; a rule of the settings can only be changed in the settings", id)
		}
		c.ChangeRules("", by, changes)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return revoked, nil
}
