package permit

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Bounds returns a function that returns what binds a session whose files come from another one's (I-50); nil for
// nothing: what the other's workspace has now, or what binds the other. of returns the workspace of a session.
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

// binding returns the rules that bind a session's files, by behavior: all that no answer or hook added, and of the others
// those that deny or ask.
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
