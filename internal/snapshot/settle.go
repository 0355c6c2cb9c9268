package snapshot

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/edit"
)

// Settle waits for the snapshots that are being taken, and takes those of files that somebody changed outside of a
// turn, or whose changes a former server did not store. rows lists the sessions in pages. Settle returns the sessions
// whose files may still be newer than their newest checkpoint, because a turn runs or a snapshot was not possible.
func Settle(ctx context.Context, s *Snapshots, rows func(context.Context, journal.Query) (journal.Page, error)) (behind []holdfast.SessionID, err error) {
	for row, err := range journal.Each(ctx, rows, journal.Query{}) {
		if err != nil {
			return nil, err
		}
		if row.Status != holdfast.StatusEnded && row.HadFiles && !settle(ctx, s, row) {
			behind = append(behind, row.ID)
		}
	}
	return behind, ctx.Err()
}

// Finish calls Ready for each session whose rewind of a borrowed workspace a former server did not finish, since others
// see the staged files there. It logs an error; the session's next use tries again. rows lists the sessions in pages.
func Finish(ctx context.Context, s *Snapshots, rows func(context.Context, journal.Query) (journal.Page, error)) error {
	for row, err := range journal.Each(ctx, rows, journal.Query{}) {
		if err != nil {
			return err
		}
		f, err := s.cfg.Boxes.Files(ctx, row)
		if err != nil || !f.Borrowed || !edit.Staged(f.Dir) {
			continue // if the files cannot be looked up, the session's next use returns the error
		}
		if err := s.Ready(ctx, row); err != nil && ctx.Err() == nil {
			s.cfg.Log.WarnContext(ctx, "an interrupted rewind of files was not finished", "session_id", row.ID, "error", err)
		}
	}
	return ctx.Err()
}

// settle is Settle for one session. It returns false if the files may still be newer than the newest checkpoint.
func settle(ctx context.Context, s *Snapshots, row journal.Row) bool {
	ok := false
	done := s.cfg.Boxes.Between(row.ID, func(ctx context.Context, row journal.Row) { ok = settleNow(ctx, s, row) })
	if done == nil {
		return false
	}
	select {
	case <-done:
		return ok
	case <-ctx.Done():
		return false
	}
}

// settleNow does the work of settle. The caller makes sure that no turn of the scope runs.
func settleNow(ctx context.Context, s *Snapshots, row journal.Row) bool {
	f, sc, unlock, err := s.acquire(ctx, row)
	if err != nil {
		return false
	}
	defer unlock()
	armed := s.later.Disarm(row.ID)
	due := armed != "" || f.Borrowed || s.cfg.Boxes.Alive(ctx, row)
	if sc.clean && !due || !exists(f.path(0)) {
		return true
	}
	at := s.end(ctx, row, holdfast.CheckpointDirect)
	if f.Borrowed && armed != holdfast.CheckpointDirect {
		at = foundAt(ctx, s, row)
	}
	if err := s.take(ctx, sc, row, f, at); err != nil {
		s.failed(ctx, row, "", err)
		return false
	}
	return true
}
