// Package trash deletes sessions: into the trash, out of it, and for good.
//
// A session in the trash has ended, and keeps its log, files and checkpoints until the time in its row.
//
// The app makes one Trash, for the API and for the timer that empties it. It imports the journal. Invariant
// (I-46): only a session whose time has come, or one that a person asked to purge, is removed for good. Its row says
// that the time has come before anything is removed, so that Empty finishes what was interrupted.
package trash

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Sessions ends sessions.
type Sessions interface {
	// End ends a session for good; it may have ended already.
	End(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) (holdfast.Session, error)
	// Alone calls work with the row of a session while nothing else changes the session.
	Alone(ctx context.Context, id holdfast.SessionID, work func(journal.Row) error) error
}

// Boxes removes the files of a session that has ended.
type Boxes interface {
	RemoveFiles(ctx context.Context, id holdfast.SessionID) error
}

// Store reads the sessions and removes their logs.
type Store interface {
	Rows(ctx context.Context, q journal.Query) (journal.Page, error)
	// DeleteSession removes an ended session and its log.
	DeleteSession(ctx context.Context, id holdfast.SessionID) error
}

// Snapshots removes the snapshots of a session that is about to be removed.
type Snapshots interface {
	Purge(ctx context.Context, row journal.Row) error
}

// Config configures a Trash. Every field must be set, and safe for concurrent use.
type Config struct {
	Sessions  Sessions
	Boxes     Boxes
	Store     Store
	Snapshots Snapshots
	Journal   *journal.Journal
	// Keep is how long a deleted session stays in the trash.
	Keep  time.Duration
	Clock func() time.Time
	Log   *slog.Logger
}

// Trash deletes sessions. Safe for concurrent use.
type Trash struct{ cfg Config }

// New returns a Trash.
func New(cfg Config) *Trash { return &Trash{cfg} }

// Delete ends a session, if it has not ended, and moves it to the trash; with Purge it removes it for good. If the
// removal fails, Empty tries it again. If the session is in the trash already, the time until it is removed stays as
// it was.
func (t *Trash) Delete(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) error {
	if _, err := t.cfg.Sessions.End(ctx, id, req); err != nil {
		return err
	}
	return t.cfg.Sessions.Alone(ctx, id, func(row journal.Row) error {
		if row.Status != holdfast.StatusEnded {
			return holdfast.Errorf(holdfast.KindConflict, "trash", "session %s was removed in the meantime, and another session has its id now", id).
				WithHint("if the other session is to go as well, delete it")
		}
		if stays := row.PurgeAt != nil && (!req.Purge || t.due(row)); !stays {
			at := t.cfg.Clock()
			if !req.Purge {
				at = at.Add(t.cfg.Keep)
			}
			if _, err := t.move(ctx, row, at, holdfast.EventSessionTrashed, cmp.Or(req.Reason, "asked")); err != nil {
				return err
			}
		}
		if req.Purge {
			return t.purge(ctx, row)
		}
		return nil
	})
}

// Restore takes a session out of the trash. The session stays ended, with its log and files, and can be forked. Restore
// fails with conflict if the session is not in the trash, or if its time has come: a purge may have removed some of its
// files.
func (t *Trash) Restore(ctx context.Context, id holdfast.SessionID) (s holdfast.Session, err error) {
	err = t.cfg.Sessions.Alone(ctx, id, func(row journal.Row) error {
		if row.PurgeAt == nil {
			return holdfast.Errorf(holdfast.KindConflict, "trash", "session %s is not in the trash", id).WithHint("holdfast trash list shows the sessions in the trash")
		}
		if t.due(row) {
			return holdfast.Errorf(holdfast.KindConflict, "trash", "session %s cannot be restored: it is being removed for good, because its time in the trash is over or it was purged", id).
				WithHint("a backup may have the session")
		}
		s, err = t.move(ctx, row, time.Time{}, holdfast.EventSessionUntrashed, "asked")
		return err
	})
	return s, err
}

// move changes the time at which a session is removed for good, and so moves it into or out of the trash; the zero
// time means never.
func (t *Trash) move(ctx context.Context, row journal.Row, at time.Time, event holdfast.EventType, reason string) (holdfast.Session, error) {
	c := journal.NewChange(row.ID)
	c.Set = &journal.RowPatch{PurgeAt: &at}
	c.Events = []journal.Draft{{Type: event, Data: holdfast.Reason{Reason: reason}}}
	done, err := t.cfg.Journal.Commit(ctx, c)
	return done.Row.Session, err
}

// purge removes an ended session for good.
func (t *Trash) purge(ctx context.Context, row journal.Row) error {
	// Remove the files first: after a crash here the session is in the trash, and Empty does this again. Snapshots go
	// before, as they need the session's files, which say what an interrupted rewind left in a user's own directory.
	if err := t.cfg.Snapshots.Purge(ctx, row); err != nil {
		return err
	}
	if err := t.cfg.Boxes.RemoveFiles(ctx, row.ID); err != nil {
		return err
	}
	if err := t.cfg.Store.DeleteSession(ctx, row.ID); err != nil {
		return err
	}
	t.cfg.Journal.Drop(row.ID)
	// Remove the files again: a box that was starting during the removal may have created the workspace again.
	return t.cfg.Boxes.RemoveFiles(ctx, row.ID)
}

// Empty removes for good the sessions in the trash whose time has come. It logs each session that cannot be removed,
// and the next call tries it again.
func (t *Trash) Empty(ctx context.Context) error {
	for row, err := range journal.Each(ctx, t.cfg.Store.Rows, journal.Query{Trash: true}) {
		if err != nil {
			return err
		}
		if !t.due(row) {
			continue
		}
		err := t.cfg.Sessions.Alone(ctx, row.ID, func(row journal.Row) error {
			if !t.due(row) {
				return nil // the session was restored after it was listed
			}
			return t.purge(ctx, row)
		})
		if err != nil && ctx.Err() == nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
			t.cfg.Log.WarnContext(ctx, "a session in the trash whose time is over could not be removed; the next try follows", "session_id", row.ID, "error", err)
		}
	}
	return ctx.Err()
}

// due reports whether a session is to be removed now.
func (t *Trash) due(row journal.Row) bool {
	return row.PurgeAt != nil && !t.cfg.Clock().Before(*row.PurgeAt)
}
