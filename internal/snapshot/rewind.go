package snapshot

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Rewind keeps the present files of a session as a checkpoint, commits a change that the function change completes, and
// then replaces the files by those of the stored checkpoint files (HZ-13). kept is the id of the checkpoint with the
// present files; "" if there is none. If files is nil, the files stay; if its id is "", they are removed before the
// commit. The box does not run. If the server ends after the commit, Ready of the next server replaces the files.
func (s *Snapshots) Rewind(ctx context.Context, row journal.Row, files *journal.Checkpoint, change func(c *journal.Change, kept holdfast.CheckpointID)) error {
	f, sc, unlock, err := s.acquire(ctx, row)
	if err != nil {
		return err
	}
	defer unlock()
	if f.Borrowed && files != nil {
		return rewindInto(ctx, s, sc, row, f, *files, change)
	}
	if exists(f.path(0)) {
		if err := s.take(ctx, sc, row, f, s.end(ctx, row, holdfast.CheckpointKept)); err != nil {
			return err
		}
	}
	if row, err = s.cfg.Sessions.Row(ctx, row.ID); err != nil { // the snapshot has moved the end of the log
		return err
	}
	kept, _, err := s.Here(ctx, row)
	if err != nil && exists(f.path(0)) { // files that are gone need no checkpoint
		return err
	}
	c := journal.NewChange(row.ID)
	c.Files = &journal.FilesChange{}
	change(&c, kept.ID)
	if files != nil && files.ID == "" {
		if err := removeFiles(row, sc, f, &c); err != nil {
			return err
		}
	}
	ctx, sc.newest, sc.clean = context.WithoutCancel(ctx), nil, false
	if files != nil && files.ID != "" {
		err = s.replaceBy(ctx, sc, row, f, *files, c)
	} else {
		_, err = s.cfg.Journal.Commit(ctx, c)
	}
	if err != nil || files != nil && files.ID == "" {
		return err
	}
	return s.rejoin(ctx, sc, row, f, holdfast.CheckpointDirect)
}

// rejoin takes a snapshot after a rewind, unless the files are those of a checkpoint on the session's present branch:
// later turns must not start from a checkpoint of another branch. If the snapshot fails, rejoin records an event.
func (s *Snapshots) rejoin(ctx context.Context, sc *scope, row journal.Row, f Files, reason holdfast.CheckpointReason) error {
	row, err := s.cfg.Sessions.Row(ctx, row.ID) // the rewind has moved the end of the log
	if err == nil && exists(f.path(0)) {
		s.failed(ctx, row, "", s.take(ctx, sc, row, f, s.end(ctx, row, reason)))
	}
	return err
}

// removeFiles removes the files of a session that goes back to before it had any, each tree at once. The caller commits
// the change c afterwards: after an error, or if the server ends in between, the session's next resume restores the files.
func removeFiles(row journal.Row, sc *scope, f Files, c *journal.Change) error {
	sc.base, sc.clean, sc.ready = nil, false, false
	for i := range names {
		own, ok := f.own(i)
		if !ok {
			return f.refuse(row)
		}
		if err := own.remove(); err != nil {
			return err
		}
	}
	if row.HadFiles {
		no := false
		c.Patch().FilesSeeded, c.Patch().HadFiles = &no, &no
	}
	return nil
}
