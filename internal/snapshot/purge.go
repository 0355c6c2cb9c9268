package snapshot

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/edit"
)

// Purge removes the checkpoints of an ended session, and what only they need from the disk. The caller deletes the
// session's row after it, and calls Purge again after a crash or an error. Purge returns conflict if turns of other
// sessions got in the way, or if a pack had to stay because it, or a checkpoint of others that lists it, is damaged.
func (s *Snapshots) Purge(ctx context.Context, row journal.Row) error {
	f, err := s.cfg.Boxes.Files(ctx, row)
	if err != nil {
		return err
	}
	if f.Borrowed && edit.Staged(f.Dir) {
		_ = s.Ready(ctx, row) // finish the rewind, of which the user's directory may have a part; if that fails, Abandon ends it
	}
	s.later.Disarm(row.ID)
	sc, unlock := s.lock(f.Scope)
	defer unlock()
	sc.ready, sc.base, sc.newest = false, nil, nil // forget what the server knows of the files
	mark, marked, err := s.cfg.Store.RestoreOf(ctx, f.Scope)
	if err != nil {
		return err
	}
	if f.Borrowed {
		err := edit.Abandon(ctx, f.Dir, f.tree(), func(rec edit.Record) (*edit.Editor, edit.Plan, error) {
			p, _, to, err := planned(ctx, &s.Points, f, row, mark, rec)
			return editor(&s.Points, f, to, rec), p, err
		})
		if err != nil && exists(f.path(0)) && !holdfast.IsKind(err, holdfast.KindConflict) {
			return err
		}
	}
	if marked && mark.Session == row.ID {
		// Remove the mark of an interrupted rewind of this session: its files are removed instead of being put in place.
		c := journal.NewChange(row.ID)
		c.Files = &journal.FilesChange{Restore: &journal.Restore{Scope: f.Scope}}
		if _, err := s.cfg.Journal.Commit(ctx, c); err != nil {
			return err
		}
	}
	return s.cfg.Purge(ctx, row.ID)
}
