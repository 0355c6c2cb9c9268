package resume

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Snapshots stores and restores verified copies of the files of sessions. Safe for concurrent use.
type Snapshots interface {
	// Newest returns the newest snapshot of a session's files; "" if there is none.
	Newest(ctx context.Context, row journal.Row) (snapshot string, err error)
	// Restore replaces a session's files by a snapshot, completely or not at all. The session's box
	// must not run.
	Restore(ctx context.Context, row journal.Row, snapshot string) error
	// Take takes a snapshot of a session's files, if they changed. No turn of the session runs. A failure is recorded as
	// an event.
	Take(ctx context.Context, row journal.Row, reason holdfast.CheckpointReason)
	// Announce is called before the first step of a turn. It takes the snapshot that is due after work of people.
	// It tells in a notice of the turn which files others changed since the session's last turn, if the workspace is one that
	// others can change.
	Announce(ctx context.Context, row journal.Row, turn holdfast.TurnID) error
	// Touching is called before each piece of work that people do in a session's box outside of a turn. done is
	// called after the work, with false if it did not begin. Stopped is called after the session's box has ended.
	Touching(ctx context.Context, id holdfast.SessionID) (done func(worked bool))
	Stopped(id holdfast.SessionID)
}

// NoSnapshots implements Snapshots for a server without them: Newest finds none, and Restore
// refuses.
type NoSnapshots struct{}

// Newest implements Snapshots.
func (NoSnapshots) Newest(context.Context, journal.Row) (string, error) { return "", nil }

// Take implements Snapshots.
func (NoSnapshots) Take(context.Context, journal.Row, holdfast.CheckpointReason) {}

// Announce implements Snapshots.
func (NoSnapshots) Announce(context.Context, journal.Row, holdfast.TurnID) error { return nil }

// Touching implements Snapshots.
func (NoSnapshots) Touching(context.Context, holdfast.SessionID) (done func(worked bool)) {
	return func(bool) {}
}

// Stopped implements Snapshots.
func (NoSnapshots) Stopped(holdfast.SessionID) {}

// Restore implements Snapshots. It always fails with unavailable.
func (NoSnapshots) Restore(_ context.Context, _ journal.Row, snapshot string) error {
	return holdfast.Errorf(holdfast.KindUnavailable, "snapshot", "snapshot %s cannot be restored: this server keeps no snapshots", holdfast.Quote(snapshot)).
		WithHint("holdfast session resume ID --fresh goes on with the agent's own files only")
}
