package network

import (
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// Bound refuses, with conflict, destinations that a forked session does not have yet and that the workspace of its
// parent, the session from which it was forked, does not allow. list is the new list of destinations of the forked
// session; nil if the list does not change.
func Bound(row journal.Row, list *[]string) error {
	if list == nil || row.Given.Bounds == nil || row.Given.Bounds.Network == nil {
		return nil
	}
	most, err := check.ParseDestinations("workspace", row.Given.Bounds.Network)
	if err != nil {
		return err
	}
	for _, s := range *list {
		d, err := check.ParseDestination(s)
		if err != nil {
			return err
		}
		if !slices.Contains(row.Network, s) && !slices.ContainsFunc(most.List, func(o check.Destination) bool { return o.Includes(d) }) {
			return holdfast.Errorf(holdfast.KindConflict, "session.update", "the destination %s is not among those of the workspace from which session %s was forked", holdfast.Quote(s), row.ID).
				WithHint("create a session in that workspace, after an admin added the destination to it")
		}
	}
	return nil
}
