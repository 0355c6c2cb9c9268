package resume

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/place"
)

// Snapshots are verified copies of the files of scopes. Safe for concurrent use.
type Snapshots interface {
	// Newest returns the newest snapshot of a scope that can be restored; empty for none.
	Newest(ctx context.Context, scope place.Scope) (snapshot string, err error)
	// Restore makes the files of a scope those of a snapshot, whole or not at all. No box of the
	// scope runs.
	Restore(ctx context.Context, scope place.Scope, snapshot string) error
}

// NoSnapshots are the Snapshots of a server that keeps none: it has none to offer, and refuses to
// restore one.
type NoSnapshots struct{}

// Newest implements Snapshots.
func (NoSnapshots) Newest(context.Context, place.Scope) (string, error) { return "", nil }

// Restore implements Snapshots: unavailable.
func (NoSnapshots) Restore(_ context.Context, _ place.Scope, snapshot string) error {
	return holdfast.Errorf(holdfast.KindUnavailable, "snapshot", "snapshot %s cannot be restored: this server keeps no snapshots", holdfast.Quote(snapshot)).
		WithHint("holdfast session resume ID --fresh goes on with the agent's own files only")
}
