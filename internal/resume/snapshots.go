package resume

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Snapshots are verified copies of the files of sessions. Safe for concurrent use.
type Snapshots interface {
	// Newest returns the newest snapshot of the files that a session works on; empty for none.
	Newest(ctx context.Context, row journal.Row) (snapshot string, err error)
	// Restore makes the files that a session works on those of a snapshot, whole or not at all. The
	// session's box does not run.
	Restore(ctx context.Context, row journal.Row, snapshot string) error
}

// NoSnapshots are the Snapshots of a server that keeps none: it has none to offer, and refuses to
// restore one.
type NoSnapshots struct{}

// Newest implements Snapshots.
func (NoSnapshots) Newest(context.Context, journal.Row) (string, error) { return "", nil }

// Restore implements Snapshots: unavailable.
func (NoSnapshots) Restore(_ context.Context, _ journal.Row, snapshot string) error {
	return holdfast.Errorf(holdfast.KindUnavailable, "snapshot", "snapshot %s cannot be restored: this server keeps no snapshots", holdfast.Quote(snapshot)).
		WithHint("holdfast session resume ID --fresh goes on with the agent's own files only")
}
