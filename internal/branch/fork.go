package branch

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Fork makes a new session that continues from a checkpoint of another session: with the other session's conversation
// up to the checkpoint, its files at the checkpoint, its settings and its environment. Permissions that people granted
// to the other session by their answers are not copied: they were for that session alone. Restrictions of the other
// session hold for the fork too (I-50). A repeated request with the same key returns the session that the first request
// made, and replayed is true.
func (b *Branches) Fork(ctx context.Context, id holdfast.SessionID, req holdfast.ForkSession, key string) (s holdfast.Session, replayed bool, err error) {
	var k *journal.Key
	if key != "" {
		k = &journal.Key{Scope: "session.create", Value: key, Hash: journal.HashOf(struct {
			Of holdfast.SessionID
			holdfast.ForkSession
		}{id, req})}
		ref, err := b.cfg.Store.KeyRef(ctx, *k)
		if err != nil || ref != "" {
			return b.made(ctx, ref, err)
		}
	}
	if req.At == "" {
		b.present(ctx, id)
	}
	row, err := b.settled(ctx, id)
	if err != nil {
		return s, false, err
	}
	defer b.cfg.Hold()()
	c, err := b.fork(ctx, row, req)
	if err != nil {
		return s, false, err
	}
	if c.Key = k; k != nil {
		k.Ref = string(c.Session)
	}
	done, err := b.cfg.Journal.Commit(ctx, c)
	if err != nil || done.Duplicate != "" {
		return b.made(ctx, done.Duplicate, err)
	}
	return done.Row.Session, false, nil
}

// made returns the session that an earlier request with the same key made, or err if that is not nil.
func (b *Branches) made(ctx context.Context, ref string, err error) (s holdfast.Session, replayed bool, _ error) {
	if err != nil {
		return s, false, err
	}
	row, err := b.cfg.Store.Row(ctx, holdfast.SessionID(ref))
	return row.Session, true, err
}

// present takes a snapshot of a session's present files, if they changed since the newest checkpoint, and waits for the
// snapshot. While a turn runs it does nothing, so that the newest checkpoint stays one from before the turn.
func (b *Branches) present(ctx context.Context, id holdfast.SessionID) {
	done := b.cfg.Sessions.Between(id, func(ctx context.Context, row journal.Row) {
		b.cfg.Snapshots.Take(ctx, row, holdfast.CheckpointDirect)
	})
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// fork returns the journal change that makes the new session in one transaction. The files are copied later, when the
// new session first needs them.
func (b *Branches) fork(ctx context.Context, from journal.Row, req holdfast.ForkSession) (c journal.Change, err error) {
	cp, files, err := b.at(ctx, from, req.At)
	if err != nil {
		return c, err
	}
	if files.ID != "" && files.Workspace == "" {
		return c, holdfast.Errorf(holdfast.KindConflict, "session.fork", "checkpoint %s does not have the files of the workspace, which was too large to be saved then", cp.ID).
			WithHint("choose another checkpoint: holdfast session checkpoints %s", from.ID)
	}
	to, err := b.head(ctx, from.ID, cp)
	if err != nil {
		return c, err
	}
	spans, _, err := Spans(ctx, b.cfg.Sessions, from.ID, to)
	if err != nil {
		return c, err
	}
	row, events, err := b.cfg.Sessions.Choose(ctx, from, req)
	if err != nil {
		return c, err
	}
	forked := holdfast.Forked{From: from.ID, Checkpoint: cp.ID, Seq: cp.Seq, Files: holdfast.FilesEmpty}
	if row.HadFiles = files.ID != ""; row.HadFiles {
		row.FilesSeeded, forked.Files = true, holdfast.FilesRestored
	}
	c = journal.NewChange(row.ID)
	c.Create = &row
	c.Events = slices.Insert(events, 1, journal.Draft{Type: holdfast.EventSessionForked, Data: forked})
	copied, err := Copy(b.cfg.Journal.Read(ctx, from.ID, 0), spans, int64(len(c.Events)), b.cfg.NewID)
	if err != nil {
		return c, err
	}
	c.Events, c.Turns = append(c.Events, copied.Events...), copied.Turns
	if !row.HadFiles {
		return c, nil
	}
	own, err := b.own(row, files, copied, int64(len(c.Events)))
	c.Files = &journal.FilesChange{
		Checkpoint: &own, Restore: &journal.Restore{Scope: own.Scope, Session: row.ID, Checkpoint: own.ID},
	}
	return c, err
}

// at returns the checkpoint that a fork starts from: the one with the given id, or without an id the newest one.
func (b *Branches) at(ctx context.Context, from journal.Row, id holdfast.CheckpointID) (holdfast.Checkpoint, journal.Checkpoint, error) {
	if id == "" {
		return b.cfg.Snapshots.Here(ctx, from)
	}
	return b.cfg.Snapshots.Find(ctx, from, id)
}

// own returns the first checkpoint of a forked session, which has the same files as the checkpoint of the session that
// it was forked from.
func (b *Branches) own(row journal.Row, files journal.Checkpoint, copied Copied, seq int64) (journal.Checkpoint, error) {
	id, err := b.cfg.NewID()
	own := journal.Checkpoint{Checkpoint: files.Checkpoint, Scope: b.cfg.Scope(row.ID), Packs: files.Packs}
	own.ID, own.Session, own.Reason, own.Abandoned, own.Held = holdfast.CheckpointID(id), row.ID, holdfast.CheckpointFork, false, false
	own.Seq, own.Turn, own.Number, own.CreatedAt = seq, copied.Turn, copied.Number, b.cfg.Clock().UTC()
	return own, err
}
