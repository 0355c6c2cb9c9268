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

// RevokeRule removes a rule that allows calls from a session and from its workspace, or with a scope from that one alone, and
// returns what it removed. by is who revokes. The next call is decided without it, in the other sessions of the workspace too. It fails
// with not_found if there is no such rule; rules that deny or ask cannot be revoked.
func (q *Questions) RevokeRule(ctx context.Context, id holdfast.SessionID, scope holdfast.ApprovalScope, rule, by string) (revoked []holdfast.Rule, err error) {
	const op = "rules.revoke"
	if scope != "" && scope != holdfast.ScopeSession && scope != holdfast.ScopeWorkspace {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "%s is not a scope that has rules", holdfast.Quote(string(scope))).WithHint("use session or workspace")
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
		ev := holdfast.RulesChanged{By: by}
		for _, r := range list {
			if r.Rule != rule || r.Behavior == "deny" || r.Behavior == "ask" || scope != "" && r.Scope != scope {
				continue
			}
			change := holdfast.RuleChange{Scope: r.Scope, Behavior: r.Behavior, Rule: r.Rule, Removed: true}
			c.Rules = append(c.Rules, journal.RuleChange{Key: r.Key, Source: by, RuleChange: change})
			ev.Changes = append(ev.Changes, change)
			revoked = append(revoked, shown(r))
		}
		if revoked == nil {
			return holdfast.Errorf(holdfast.KindNotFound, op, "no added rule %s allows calls of session %s", holdfast.Quote(rule), id).
				WithHint("holdfast approvals rules %s lists them; what the settings allow is changed there", id)
		}
		c.Events = []journal.Draft{{Type: holdfast.EventRulesChanged, Data: ev}}
		return nil
	})
	if err != nil {
		return nil, err
	}
	q.cfg.Changed(id)
	return revoked, nil
}
