package snapshot

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Settle waits for the snapshots that are being taken, and takes those that are due because somebody worked on
// files outside of a turn or a former server did not get to it. rows lists the sessions in pages. It
// returns the sessions of which files may be newer than the newest checkpoint all the same: a turn runs, or a
// snapshot was not possible.
func Settle(ctx context.Context, s *Snapshots, rows func(context.Context, journal.Query) (journal.Page, error)) (behind []holdfast.SessionID, err error) {
	for q := (journal.Query{Limit: 500}); ; {
		page, err := rows(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, row := range page.Rows {
			if row.Status != holdfast.StatusEnded && row.HadFiles && !settle(ctx, s, row) {
				behind = append(behind, row.ID)
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return behind, ctx.Err()
		}
	}
}

// settle is Settle for one session.
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

// settleNow is settle while no turn of the scope runs.
func settleNow(ctx context.Context, s *Snapshots, row journal.Row) bool {
	f, sc, unlock, err := s.acquire(ctx, row)
	if err != nil {
		return false
	}
	defer unlock()
	armed := s.disarm(row.ID)
	due := armed || f.Borrowed || s.cfg.Boxes.Alive(ctx, row)
	if sc.clean && !due || !exists(f.path(0)) {
		return true
	}
	at := s.end(ctx, row, holdfast.CheckpointDirect)
	if f.Borrowed && !armed {
		at = foundAt(ctx, s, row)
	}
	if err := s.take(ctx, sc, row, f, at); err != nil {
		s.failed(ctx, row, "", err)
		return false
	}
	return true
}
