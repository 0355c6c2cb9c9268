package snapshot

import (
	"context"
	"errors"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/edit"
	"github.com/holdfast-run/holdfast/internal/snapshot/told"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
)

// Borrowed reports whether the workspace of a session is a directory that is not the session's alone.
func (p *Points) Borrowed(ctx context.Context, row journal.Row) (bool, error) {
	f, err := p.cfg.Boxes.Files(ctx, row)
	return f.Borrowed, err
}

// Keep takes a snapshot of the files as they are, and returns the checkpoint that has them; conflict if the workspace
// has no checkpoints now. No turn of the session's scope runs.
func (s *Snapshots) Keep(ctx context.Context, row journal.Row) (holdfast.CheckpointID, error) {
	f, sc, unlock, err := s.acquire(ctx, row)
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := s.take(ctx, sc, row, f, s.end(ctx, row, holdfast.CheckpointKept)); err != nil {
		return "", err
	}
	kept, _, err := s.base(ctx, sc, f)
	if err == nil && kept.Workspace == "" {
		err = told.Unkept(row.ID, f.path(0))
	}
	return kept.ID, err
}

// Plan returns what a rewind to a stored checkpoint would change in the workspace of a session, without changing a
// file. It takes a snapshot first, if the files changed. No turn of the session's scope runs. Errors are those of
// Rewind, except that the plan lists conflicts of single paths.
func (s *Snapshots) Plan(ctx context.Context, row journal.Row, to journal.Checkpoint) (holdfast.RewindPlan, error) {
	f, sc, unlock, err := s.acquire(ctx, row)
	if err != nil {
		return holdfast.RewindPlan{}, err
	}
	defer unlock()
	p, err := planInto(ctx, s, sc, row, f, to)
	if err != nil {
		return holdfast.RewindPlan{}, err
	}
	if len(p.conflicts) == 0 && f.Borrowed {
		if p.conflicts, err = editor(&s.Points, f, to, edit.Record{}).Check(ctx, p.Plan); err != nil {
			return holdfast.RewindPlan{}, err
		}
	}
	return p.Show(p.conflicts), nil
}

// intoPlan is the plan of a rewind from the newest checkpoint, which has the present files.
type intoPlan struct {
	edit.Plan
	from journal.Checkpoint
	// conflicts are paths of the plan that others changed since the target checkpoint.
	conflicts []string
}

// planInto takes a snapshot of the present files, if they changed, and plans the rewind from there to a checkpoint.
func planInto(ctx context.Context, s *Snapshots, sc *scope, row journal.Row, f Files, to journal.Checkpoint) (p intoPlan, err error) {
	at := s.end(ctx, row, holdfast.CheckpointDirect)
	if f.Borrowed && s.later.Disarm(row.ID) != holdfast.CheckpointDirect {
		at = foundAt(ctx, s, row)
	}
	if err := s.take(ctx, sc, row, f, at); err != nil {
		return p, err
	}
	if p.from, _, err = s.base(ctx, sc, f); err != nil {
		return p, err
	}
	if to.ID == "" || to.Workspace == "" || p.from.Workspace == "" {
		return p, told.Unknown(row.ID, f.path(0), "no checkpoint has the files of that time, or none has the present files")
	}
	if p.Plan, err = s.steps(ctx, f, p.from, to, true); err != nil || !f.Borrowed {
		return p, err
	}
	others, err := s.since(ctx, row, f, to)
	if err != nil {
		return p, err
	}
	for _, step := range p.Steps {
		if others[step.Path] {
			p.conflicts = append(p.conflicts, step.Path)
		}
	}
	return p, nil
}

// steps returns the plan from one checkpoint's workspace to another's; back says that the second checkpoint is the older.
func (p *Points) steps(ctx context.Context, f Files, from, to journal.Checkpoint, back bool) (edit.Plan, error) {
	a, b, src, err := p.both(ctx, from, to)
	if err != nil {
		return edit.Plan{}, err
	}
	out, err := f.leaves(ctx, 0, src, a[0], b[0], back)
	if err != nil {
		return edit.Plan{}, err
	}
	var plan edit.Plan
	for c, err := range tree.Diff(ctx, src, a[0], b[0]) {
		if err != nil {
			return plan, err
		}
		if c.Path == "." || same(c.Old, c.New) {
			continue
		}
		left, err := untouched(out, c)
		if err != nil {
			return plan, err
		}
		if left {
			plan.LeftOut++
			continue
		}
		plan.Steps = append(plan.Steps, edit.Step{Path: c.Path, Old: entryOf(src, a[0], c.Path, c.Old), New: entryOf(src, b[0], c.Path, c.New)})
	}
	return plan, nil
}

// since returns the files and links that others changed, or may have changed, after a checkpoint of a session was
// stored. It returns conflict if that is not known. What changed during turns or commands of other sessions in the same
// directory counts, too: if this session worked at the same time, its own checkpoints have the other sessions' changes.
func (p *Points) since(ctx context.Context, row journal.Row, f Files, to journal.Checkpoint) (map[string]bool, error) {
	paths := map[string]bool{}
	if err := after(ctx, p, row, f, to, byOthers, paths); err != nil {
		return nil, err
	}
	for _, trash := range []bool{false, true} {
		for other, err := range journal.Each(ctx, p.cfg.Sessions.Rows, journal.Query{Workspace: row.Workspace, Trash: trash}) {
			if err != nil {
				return nil, err
			}
			its, err := p.cfg.Boxes.Files(ctx, other)
			if err == nil && other.ID != row.ID && its.path(0) == f.path(0) {
				err = after(ctx, p, other, its, to, func(cp journal.Checkpoint) bool { return !byOthers(cp) }, paths)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return paths, nil
}

// after adds to paths what changed in those checkpoints of a session that were stored after the checkpoint to and that
// the function which selects. It returns conflict if a checkpoint that would show such changes is missing.
func after(ctx context.Context, p *Points, row journal.Row, f Files, to journal.Checkpoint, which func(journal.Checkpoint) bool, paths map[string]bool) error {
	all, err := history(ctx, p, row)
	if err != nil {
		return err
	}
	seq := int64(0)
	for i, cp := range all {
		switch {
		case cp.Order <= to.Order:
			seq = max(seq, cp.Seq)
		case cp.Workspace == "":
			return told.Unknown(to.Session, f.path(0), "the directory had no checkpoints for some time after this checkpoint, so that nobody knows whose changes would be lost")
		case i == 0 && which(cp):
			return told.Unknown(to.Session, f.path(0), "session "+string(row.ID)+" had no checkpoint before its first work, so that nobody knows what this work changed")
		}
	}
	dropped, err := p.cfg.Store.Dropped(ctx, row.ID, []journal.Span{{After: 0, Upto: row.LastSeq}}, seq)
	if err != nil {
		return err
	}
	if dropped {
		return told.Unknown(to.Session, f.path(0), "later checkpoints were removed, so that nobody knows whose changes would be lost")
	}
	return changes(ctx, p, f, all, func(cp journal.Checkpoint) bool { return cp.Order > to.Order && which(cp) }, paths)
}

// editor returns the Editor that changes single files of a borrowed workspace, for the rewind that a record describes.
func editor(p *Points, f Files, to journal.Checkpoint, rec edit.Record) *edit.Editor {
	return rec.Editor(edit.Editor{
		Tree: f.tree(), UID: f.Lent.UID, GID: f.Lent.GID, Now: p.cfg.Clock(), At: func(point string) { p.cfg.At(to.Session, point) },
	})
}

// rewindInto is Rewind for the files of a borrowed workspace. It writes the new files next to those that they replace,
// and checks everything, before it commits the change. After that this server, or the next one, puts them in their
// places.
func rewindInto(ctx context.Context, s *Snapshots, sc *scope, row journal.Row, f Files, to journal.Checkpoint, change func(c *journal.Change, kept holdfast.CheckpointID)) error {
	s.into.Lock()
	defer s.into.Unlock()
	p, err := planInto(ctx, s, sc, row, f, to)
	if err != nil {
		return err
	}
	if len(p.conflicts) > 0 {
		return told.Conflicting(row.ID, f.path(0), p.conflicts)
	}
	if row, err = s.cfg.Sessions.Row(ctx, row.ID); err != nil { // the snapshot has moved the end of the log
		return err
	}
	if err := s.take(ctx, sc, row, f, s.end(ctx, row, holdfast.CheckpointKept)); err != nil {
		return err
	}
	kept, _, err := s.base(ctx, sc, f)
	if err != nil {
		return err
	}
	if kept.Workspace != p.from.Workspace {
		return told.Busy(f.path(0))
	}
	c := journal.NewChange(row.ID)
	c.Files = &journal.FilesChange{}
	change(&c, kept.ID)
	if err := stage(ctx, &s.Points, row, f, p, kept, to); err != nil {
		return errors.Join(err, edit.Unstage(f.Dir, f.tree()))
	}
	s.cfg.At(row.ID, "ready")
	ctx = context.WithoutCancel(ctx)
	if err := s.replaceBy(ctx, sc, row, f, to, c); err != nil {
		return err
	}
	return s.rejoin(ctx, sc, row, f, holdfast.CheckpointDirect)
}

// stage writes the new files of a plan next to those that they replace; conflict if the plan does not fit any more.
func stage(ctx context.Context, pts *Points, row journal.Row, f Files, p intoPlan, kept, to journal.Checkpoint) error {
	rec := edit.Record{Kept: kept.ID, To: to.ID, Begun: pts.cfg.Clock().UnixNano()}
	conflicts, err := rec.Stage(ctx, f.Dir, editor(pts, f, to, rec), p.Plan)
	if err == nil && len(conflicts) > 0 {
		err = told.Conflicting(row.ID, f.path(0), conflicts)
	}
	return err
}

// finishInto is finish for a borrowed workspace: it carries out the plan of a rewind, of which the database has a mark
// and the session's directory a record. If the record is missing, it removes the mark and changes no file.
func finishInto(ctx context.Context, s *Snapshots, sc *scope, row journal.Row, f Files, mark journal.Restore) error {
	rec, err := edit.ReadRecord(f.Dir)
	if err != nil {
		return err
	}
	left, text := []string(nil), ""
	if rec.To != mark.Checkpoint {
		text = told.Unbegun(f.path(0), mark.Checkpoint)
	} else {
		if left, err = place(ctx, s, f, row, mark, rec); holdfast.IsKind(err, holdfast.KindNotFound) {
			left, err = place(ctx, s, f, row, mark, rec) // a second try: a pack may have been replaced by another meanwhile
		}
		if err != nil {
			return err
		}
		if len(left) > 0 {
			text = told.Left(f.path(0), mark.Checkpoint, rec.Kept, left)
		}
	}
	s.cfg.At(row.ID, "restored")
	c := journal.NewChange(row.ID)
	c.Files = &journal.FilesChange{Restore: &journal.Restore{Scope: f.Scope}}
	if text != "" {
		c.Events = []journal.Draft{{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: holdfast.NoticeRewindLeft, Level: "warning", Text: journal.Plain(text)}}}
	}
	if _, err = s.cfg.Journal.Commit(context.WithoutCancel(ctx), c); err != nil {
		return err
	}
	sc.base, sc.newest, sc.clean = nil, nil, false
	return edit.Unstage(f.Dir, f.tree())
}

// place changes the home directory to the files of the checkpoint, and moves the staged files of the plan to their
// final paths in the workspace. It returns the paths that it did not change because somebody else had changed them.
func place(ctx context.Context, s *Snapshots, f Files, row journal.Row, mark journal.Restore, rec edit.Record) ([]string, error) {
	p, kept, to, err := planned(ctx, &s.Points, f, row, mark, rec)
	if err != nil {
		return nil, err
	}
	if err := s.replace(ctx, f, kept, to, false); err != nil {
		return nil, err
	}
	return rec.Apply(ctx, f.Dir, editor(&s.Points, f, to, rec), p)
}

// planned returns the plan of the rewind that a mark and a record describe, and the two checkpoints of this rewind.
func planned(ctx context.Context, pts *Points, f Files, row journal.Row, mark journal.Restore, rec edit.Record) (p edit.Plan, kept, to journal.Checkpoint, err error) {
	if to, err = pts.cfg.Store.Checkpoint(ctx, mark.Session, mark.Checkpoint); err != nil {
		return p, kept, to, err
	}
	if kept, err = pts.cfg.Store.Checkpoint(ctx, row.ID, rec.Kept); err != nil {
		return p, kept, to, err
	}
	p, err = pts.steps(ctx, f, kept, to, true)
	return p, kept, to, err
}

// cutReport returns a text that says what a power cut may have taken from a borrowed workspace. back are the paths of
// the home directory that were put back.
func cutReport(ctx context.Context, p *Points, f Files, target, present journal.Checkpoint, back []string) (string, error) {
	var missing, empty, other []string
	if target.Workspace != "" && present.Workspace != "" {
		plan, err := p.steps(ctx, f, target, present, false)
		if err != nil {
			return "", err
		}
		missing, empty, other = plan.Losses()
	}
	return told.Losses(f.path(0), target.ID, missing, empty, other, back), nil
}
