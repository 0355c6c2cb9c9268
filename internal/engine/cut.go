package engine

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boots"
	"github.com/holdfast-run/holdfast/internal/journal"
)

const (
	// cutTail is how many of a session's newest events are always examined.
	cutTail = 64
	// forgetEvery is the interval at which sessions are dropped from the list of those
	// with commands outside of turns.
	forgetEvery = 30 * time.Second
)

// openBoots records this boot of the machine, and gives a notice to every session whose
// files may be lost by the end of the last boot (I-34). It runs before any command.
func (e *Engine) openBoots(ctx context.Context) error {
	if e.cfg.Boot == "" {
		return nil
	}
	var err error
	e.boots, err = boots.Open(ctx, boots.Config{Facts: e.cfg.Store, Boot: e.cfg.Boot, Newest: e.cfg.Store.NewestEvent, Clock: e.cfg.Clock})
	if err != nil {
		return err
	}
	cut := e.boots.Pending()
	if cut == nil {
		return nil
	}
	ids, err := e.cfg.Store.ActiveSince(ctx, cut.Since())
	if err != nil {
		return err
	}
	for _, id := range cut.Direct {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, id := range e.boots.Told() {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	var told []holdfast.SessionID
	for _, id := range ids {
		risk, err := e.noticeCut(ctx, id, *cut)
		switch {
		case holdfast.IsKind(err, holdfast.KindNotFound):
		case err != nil:
			return err
		case risk:
			told = append(told, id)
		}
	}
	e.cfg.Log.Warn("the machine went down without a shutdown: files of commands in the minute before may be lost",
		"last_event", cut.Last, "sessions", len(told))
	return e.boots.Settled(ctx, told)
}

// noticeCut gives a session its notice of a cut, unless none of its files is at risk or
// it has the notice already. It returns whether a notice of this cut or an earlier one
// counts now. Nobody else writes to the session yet.
func (e *Engine) noticeCut(ctx context.Context, id holdfast.SessionID, cut boots.Cut) (bool, error) {
	row, err := e.cfg.Store.Row(ctx, id)
	if err != nil {
		return false, err
	}
	turns, err := e.turnsSince(ctx, row, cut.Since())
	if err != nil {
		return false, err
	}
	from := row.LastSeq - cutTail
	var running holdfast.TurnID
	for _, t := range turns {
		from = min(from, t.MessageSeq-1)
		if t.Status == holdfast.TurnRunning {
			running = t.ID
		}
	}
	f := boots.Fold{Since: cut.Since(), Agent: row.Runtime != loopRuntime}
	for ev, err := range e.cfg.Journal.Read(ctx, id, max(from, 0)) {
		if err == nil {
			err = f.Add(ev)
		}
		if err != nil {
			return false, err
		}
	}
	risk := holdfast.FilesAtRisk{
		Turns: []holdfast.TurnAtRisk{}, Direct: f.Direct || slices.Contains(cut.Direct, id), LastEvent: cut.Last.UTC(), Since: cut.Since().UTC(),
	}
	for _, t := range turns {
		if slices.Contains(f.Turns(), t.ID) {
			risk.Turns = append(risk.Turns, holdfast.TurnAtRisk{ID: t.ID, Number: t.Number})
		}
	}
	if f.Told != nil && f.Told.LastEvent.Equal(risk.LastEvent) || len(risk.Turns) == 0 && !risk.Direct {
		counts, err := e.readRisk(ctx, row)
		return counts != nil, err
	}
	c := journal.NewChange(id)
	c.Events = []journal.Draft{{Type: holdfast.EventNotice, Turn: running, Data: holdfast.Notice{
		Code: holdfast.NoticeFilesAtRisk, Level: "warning", Text: boots.Text(risk), AtRisk: &risk,
	}}}
	_, err = e.cfg.Journal.Commit(ctx, c)
	return true, err
}

// turnsSince returns the turns of a session that had not ended at a time, by number.
func (e *Engine) turnsSince(ctx context.Context, row journal.Row, since time.Time) ([]journal.TurnRow, error) {
	const page = 100
	var out []journal.TurnRow
	for to := row.LastTurn; to > 0; to -= page {
		part, err := e.cfg.Store.Turns(ctx, row.ID, max(to-page, 0), int(min(to, page)))
		if err != nil {
			return nil, err
		}
		late := slices.DeleteFunc(slices.Clone(part), func(t journal.TurnRow) bool { return t.EndedAt != nil && t.EndedAt.Before(since) })
		out = append(late, out...)
		if len(late) < len(part) {
			break
		}
	}
	return out, nil
}

// atRisk is readRisk, but reads no log for sessions that no cut concerned: the read
// would take most of a warm resume.
func (e *Engine) atRisk(ctx context.Context, row journal.Row) (*holdfast.FilesAtRisk, error) {
	if !slices.Contains(e.boots.Told(), row.ID) {
		return nil, nil
	}
	return e.readRisk(ctx, row)
}

// readRisk is what the last notice of a cut says, unless the session was resumed since, or
// a turn has ended that began after it; then it is nil.
func (e *Engine) readRisk(ctx context.Context, row journal.Row) (*holdfast.FilesAtRisk, error) {
	var risk *holdfast.FilesAtRisk
	var in holdfast.TurnID
	for ev, err := range e.cfg.Journal.Read(ctx, row.ID, max(row.LastSeq-cutTail, 0)) {
		if err != nil {
			return nil, err
		}
		switch {
		case ev.EndsTurn() && ev.Turn != in, ev.Type == holdfast.EventSessionResumed:
			risk = nil
		case ev.Type == holdfast.EventNotice:
			var n holdfast.Notice
			if err := ev.Decode(&n); err != nil {
				return nil, err
			}
			if n.Code == holdfast.NoticeFilesAtRisk {
				risk, in = n.AtRisk, ev.Turn
			}
		}
	}
	return risk, nil
}

// forgetter keeps the list of sessions with commands outside of turns short.
func (e *Engine) forgetter() {
	t := time.NewTicker(forgetEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if err := e.boots.Forget(e.base); err != nil {
				e.cfg.Log.Debug("commands outside of turns stay on record", "error", err)
			}
		case <-e.leaving:
			return
		case <-e.base.Done():
			return
		}
	}
}

// endBoot records an end in order once every file is on the disk. If a step fails, or
// takes longer than ctx, and the machine ends next, that counts as a power cut.
func (e *Engine) endBoot(ctx context.Context) {
	if e.boots == nil {
		return
	}
	synced := make(chan error, 1)
	go func() { synced <- e.cfg.Boxes.Files.Sync(ctx, e.cfg.Boxes.Dir) }()
	var err error
	select {
	case err = <-synced:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil {
		err = e.boots.Ended(ctx)
	}
	if err != nil {
		e.cfg.Log.Warn("files may not be on the disk", "error", err)
	}
}
