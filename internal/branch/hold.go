package branch

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Hold marks a checkpoint of a session as held, so that the rules of retention never remove it, or removes the mark if
// held is false. The session may have ended. Hold returns the checkpoint as it is afterwards. The checkpoint of a turn
// that changed no file has the files of the checkpoint before it: then Hold marks that older checkpoint. If the mark is
// as wanted already, Hold writes no event. The error is not_found for an unknown checkpoint, conflict for one without
// files.
func (b *Branches) Hold(ctx context.Context, id holdfast.SessionID, at holdfast.CheckpointID, held bool) (holdfast.Checkpoint, error) {
	row, err := b.settled(ctx, id)
	if err != nil {
		return holdfast.Checkpoint{}, err
	}
	cp, files, err := b.cfg.Snapshots.Find(ctx, row, at)
	switch {
	case err != nil:
		return cp, err
	case files.ID == "":
		return cp, holdfast.Errorf(holdfast.KindConflict, "session.hold", "session %s had no files at checkpoint %s, so there is nothing to hold", id, cp.ID).
			WithHint("choose another checkpoint: holdfast session checkpoints %s", id)
	}
	_, err = b.cfg.Journal.CommitAt(ctx, id, func(_ journal.Row, c *journal.Change) error {
		now, err := b.cfg.Snapshots.Stored(ctx, id, files.ID)
		if err != nil || now.Held == held {
			return err
		}
		event := holdfast.EventCheckpointHeld
		if !held {
			event = holdfast.EventCheckpointReleased
		}
		c.Files = &journal.FilesChange{Hold: &journal.Hold{Checkpoint: files.ID, Held: held}}
		c.Events = []journal.Draft{{Type: event, Data: holdfast.HeldCheckpoint{Checkpoint: files.ID}}}
		return nil
	})
	cp.Held = held
	return cp, err
}
