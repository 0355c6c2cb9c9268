package permit

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Bounds returns a function that returns the bounds of a session that is forked from the given one (I-50): the network
// and limits of the given session's workspace, or the bounds that the given session has itself, and its rules. They are
// nil if nothing binds the fork. of returns the workspace of a session.
func Bounds(
	from rules, of func(holdfast.SessionID) (holdfast.Workspace, bool),
) func(context.Context, journal.Row) (*journal.Bounds, error) {
	return func(ctx context.Context, row journal.Row) (*journal.Bounds, error) {
		out := row.Given.Bounds.Clone()
		if out == nil {
			out = &journal.Bounds{}
		}
		if row.Workspace != "" {
			w, ok := of(row.ID)
			if !ok {
				return nil, journal.NoWorkspace(row.Workspace)
			}
			out.Network, out.Limits = w.Network, w.Limits
		}
		var err error
		if out.Rules, err = binding(ctx, from, row); err != nil {
			return nil, err
		}
		if out.Network == nil && len(out.Limits)+len(out.Rules) == 0 {
			return nil, nil
		}
		return out, nil
	}
}

// binding returns the rules of a session that also bind its forks, by behavior: every rule that denies or asks, and the
// allow rules except those that an answer, a hook or the policy added.
func binding(ctx context.Context, from rules, row journal.Row) (map[string][]string, error) {
	list, err := stored(ctx, from, row)
	out := map[string][]string{}
	for _, r := range list {
		if (r.Tightens() || !added(r)) && !slices.Contains(out[r.Behavior], r.Rule) {
			out[r.Behavior] = append(out[r.Behavior], r.Rule)
		}
	}
	return out, err
}
