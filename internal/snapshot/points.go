package snapshot

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/coded"
	"github.com/holdfast-run/holdfast/internal/snapshot/told"
)

const turnsRead = 100 // how many turns the method ended reads from the database at a time

// ended returns the newest turn of a session's branch that ran and has ended; the zero TurnRow if there is none.
func (p *Points) ended(ctx context.Context, row journal.Row) (journal.TurnRow, error) {
	spans, err := p.cfg.Branch(ctx, row.ID, row.LastSeq)
	if err != nil {
		return journal.TurnRow{}, err
	}
	for to := row.LastTurn; to > 0; to -= turnsRead {
		from := max(to-turnsRead, 0)
		list, err := p.cfg.Sessions.Turns(ctx, row.ID, from, int(to-from))
		if err != nil {
			return journal.TurnRow{}, err
		}
		for _, t := range slices.Backward(list) {
			if began(t) && holds(spans, t.EndSeq) {
				return t, nil
			}
		}
	}
	return journal.TurnRow{}, nil
}

// began reports whether a turn ran and has ended, so that its end is a checkpoint.
func began(t journal.TurnRow) bool { return t.Status.Terminal() && t.StartedAt != nil }

// Find returns a checkpoint by its id, or by the id of the turn at whose end it is. It returns not_found for an unknown
// checkpoint and for one that was dropped, and conflict if the snapshot of the turn failed. files is the stored
// checkpoint that has the files of cp; its id is empty if there were no files.
func (p *Points) Find(ctx context.Context, row journal.Row, id holdfast.CheckpointID) (cp holdfast.Checkpoint, files journal.Checkpoint, err error) {
	files, err = p.cfg.Store.Checkpoint(ctx, row.ID, id)
	if !holdfast.IsKind(err, holdfast.KindNotFound) {
		return files.Checkpoint, files, err
	}
	t, err := p.cfg.Sessions.Turn(ctx, row.ID, holdfast.TurnID(id))
	if holdfast.IsKind(err, holdfast.KindNotFound) || err == nil && !began(t) {
		return cp, files, journal.NoCheckpoint(row.ID, id)
	}
	if err == nil {
		err = p.kept(ctx, row, t)
	}
	if err != nil {
		return cp, files, err
	}
	now, err := p.cfg.Branch(ctx, row.ID, row.LastSeq)
	if err != nil {
		return cp, files, err
	}
	cp, files, gone, err := p.unchanged(ctx, row, t, now)
	if err == nil && gone {
		err = told.Removed(row.ID, t.Number)
	}
	return cp, files, err
}

// Stored returns a stored checkpoint by its own id; not_found for an unknown one.
func (p *Points) Stored(ctx context.Context, id holdfast.SessionID, cp holdfast.CheckpointID) (journal.Checkpoint, error) {
	return p.cfg.Store.Checkpoint(ctx, id, cp)
}

// kept returns conflict if the snapshot at the end of a turn failed: no checkpoint has the files of that moment.
func (p *Points) kept(ctx context.Context, row journal.Row, t journal.TurnRow) error {
	for ev, err := range p.cfg.Journal.Read(ctx, row.ID, t.EndSeq) {
		if err != nil || ev.Type == holdfast.EventTurnStarted {
			return err
		}
		if ev.Type == holdfast.EventSnapshotFailed && t.ID != "" && ev.Turn == t.ID {
			return told.Unstored(row.ID, t.Number, ev.Seq)
		}
	}
	return nil
}

// Here returns the newest checkpoint of the branch that a session is on, as Find does; if there is none, the zero
// Checkpoint. It returns conflict if the snapshot of the last turn failed and no other snapshot was taken since.
func (p *Points) Here(ctx context.Context, row journal.Row) (cp holdfast.Checkpoint, files journal.Checkpoint, err error) {
	spans, err := p.cfg.Branch(ctx, row.ID, row.LastSeq)
	if err != nil {
		return cp, files, err
	}
	if files, _, err = p.cfg.Store.Within(ctx, row.ID, spans); err != nil {
		return cp, files, err
	}
	last, err := p.ended(ctx, row)
	if err != nil || last.EndSeq <= files.Seq {
		return files.Checkpoint, files, err
	}
	if err := p.kept(ctx, row, last); err != nil {
		return cp, files, err
	}
	cp, same, gone, err := p.unchanged(ctx, row, last, spans)
	if err == nil && gone {
		return files.Checkpoint, files, nil
	}
	return cp, same, err
}

// unchanged returns the checkpoint at the end of a turn that changed no file. files is the stored checkpoint before it,
// which has the same files. now is the session's present branch. gone is true if the checkpoint with these files was
// dropped, so that files is an older one, with other files.
func (p *Points) unchanged(ctx context.Context, row journal.Row, t journal.TurnRow, now []journal.Span) (cp holdfast.Checkpoint, files journal.Checkpoint, gone bool, err error) {
	spans, err := p.cfg.Branch(ctx, row.ID, t.EndSeq)
	if err != nil {
		return cp, files, false, err
	}
	if files, _, err = p.cfg.Store.Within(ctx, row.ID, spans); err != nil {
		return cp, files, false, err
	}
	if gone, err = p.cfg.Store.Dropped(ctx, row.ID, spans, files.Seq); gone || err != nil {
		return cp, files, gone, err
	}
	cp = files.Checkpoint
	cp.ID, cp.Session, cp.Reason = holdfast.CheckpointID(t.ID), row.ID, holdfast.CheckpointTurn
	cp.Seq, cp.Turn, cp.Number = t.EndSeq, t.ID, t.Number
	if t.EndedAt != nil {
		cp.CreatedAt = *t.EndedAt
	}
	cp.Abandoned = !holds(now, t.EndSeq)
	return cp, files, false, nil
}

func holds(spans []journal.Span, seq int64) bool {
	return slices.ContainsFunc(spans, func(s journal.Span) bool { return seq > s.After && seq <= s.Upto })
}

// List returns a page of the checkpoints of a session, newest first: the stored ones, and the ends of turns that
// changed no file or whose snapshot failed. limit 0 stands for 50, 1000 is the most. A page may have fewer although
// more follow.
func (p *Points) List(ctx context.Context, row journal.Row, after string, limit int) (holdfast.CheckpointPage, error) {
	page := holdfast.CheckpointPage{Checkpoints: []holdfast.Checkpoint{}}
	at, err := coded.ParseCursor(after, row.LastTurn)
	if err == nil {
		limit, err = coded.Limit(limit)
	}
	if err != nil {
		return page, err
	}
	// Read one more than the page holds of stored checkpoints and of turns, to know whether another page follows.
	stored, err := p.cfg.Store.Checkpoints(ctx, row.ID, at.Place, min(limit+1, coded.MostPage))
	if err != nil {
		return page, err
	}
	full := len(stored) == coded.MostPage
	turns, err := p.begun(ctx, row, at.Turn, limit+1)
	if err != nil {
		return page, err
	}
	var now []journal.Span // the session's present branch, read when it is first needed
	more := len(turns) > limit
	for len(page.Checkpoints) < limit && len(stored)+len(turns) > 0 && (len(turns) > 0 || !more) {
		var cp holdfast.Checkpoint
		if n := len(turns); n > 0 && (len(stored) == 0 || turns[n-1].EndSeq >= stored[0].Seq) {
			t := turns[n-1]
			turns, at.Turn = turns[:n-1], t.Number
			if slices.ContainsFunc(stored, func(c journal.Checkpoint) bool { return c.ID == holdfast.CheckpointID(t.ID) }) {
				continue
			}
			if now == nil {
				if now, err = p.cfg.Branch(ctx, row.ID, row.LastSeq); err != nil {
					return page, err
				}
			}
			var gone bool
			if cp, _, gone, err = p.unchanged(ctx, row, t, now); err == nil && !gone {
				if err = p.kept(ctx, row, t); holdfast.IsKind(err, holdfast.KindConflict) {
					cp, err = coded.Failed(cp), nil
				}
			}
			if err != nil {
				return page, err
			}
			if gone {
				continue
			}
		} else {
			cp, at.Place = stored[0].Checkpoint, stored[0].Place()
			stored = stored[1:]
		}
		page.Checkpoints = append(page.Checkpoints, cp)
	}
	if full || len(stored)+len(turns) > 0 || more {
		page.Next = at.String()
	}
	return page, nil
}

// begun returns turns of a session with numbers below before that ran and have ended, in order: the newest ones, at
// least as many as want says, or all if there are fewer.
func (p *Points) begun(ctx context.Context, row journal.Row, before int64, want int) (turns []journal.TurnRow, err error) {
	for to := before - 1; to > 0 && len(turns) < want; {
		from := max(to-int64(want), 0)
		list, err := p.cfg.Sessions.Turns(ctx, row.ID, from, int(to-from))
		if err != nil {
			return nil, err
		}
		turns = append(slices.DeleteFunc(list, func(t journal.TurnRow) bool { return t.Number > to || !began(t) }), turns...)
		to = from
	}
	return turns, nil
}
