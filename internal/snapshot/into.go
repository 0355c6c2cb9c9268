package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/edit"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
)

// mostPlanned is how many paths a plan shows at most.
const mostPlanned = 10_000

// Borrowed reports whether the workspace of a session is a directory that is not the session's alone.
func (p *Points) Borrowed(ctx context.Context, row journal.Row) (bool, error) {
	f, err := p.cfg.Boxes.Files(ctx, row)
	return f.Borrowed, err
}

// Plan returns what a rewind to a stored checkpoint would change in the workspace of a session, and changes no file of it. It takes a
// snapshot first, if the files changed. No turn of the session's scope runs. Errors are those of Rewind, but for conflicts
// of single paths, which the plan lists.
func (s *Snapshots) Plan(ctx context.Context, row journal.Row, to journal.Checkpoint) (holdfast.RewindPlan, error) {
	f, sc, unlock, err := s.acquire(ctx, row)
	if err != nil {
		return holdfast.RewindPlan{}, err
	}
	defer unlock()
	p, err := s.planInto(ctx, sc, row, f, to)
	if err != nil {
		return holdfast.RewindPlan{}, err
	}
	if len(p.conflicts) == 0 && f.Borrowed {
		if p.conflicts, err = s.editor(f, p.src, p.from, to).Check(ctx, p.Plan); err != nil {
			return holdfast.RewindPlan{}, err
		}
	}
	return p.shown(), nil
}

// intoPlan is the plan of a rewind from the newest checkpoint, which has the present files.
type intoPlan struct {
	edit.Plan
	from journal.Checkpoint
	src  tree.Source
	// conflicts are paths of the plan that others changed since the target.
	conflicts []string
}

// shown returns the plan as the API shows it.
func (p intoPlan) shown() holdfast.RewindPlan {
	out := holdfast.RewindPlan{LeftOut: p.LeftOut}
	n := 0
	add := func(list *[]string, path string) {
		if n++; n <= mostPlanned {
			*list = append(*list, shown(0, path))
		}
	}
	for _, s := range p.Steps {
		switch {
		case s.Removes():
			add(&out.Remove, s.Path)
		case s.Unmakes():
			add(&out.RemoveDirs, s.Path)
		}
		switch {
		case s.Writes():
			add(&out.Write, s.Path)
		case s.Makes():
			add(&out.MakeDirs, s.Path)
		}
	}
	out.More = max(n-mostPlanned, 0)
	for _, c := range p.conflicts {
		if len(out.Conflicts) < mostPaths {
			out.Conflicts = append(out.Conflicts, shown(0, c))
		}
	}
	out.ConflictCount = len(p.conflicts)
	return out
}

// planInto takes a snapshot of the present files, if it differs from the newest checkpoint, and plans the way from there.
func (s *Snapshots) planInto(ctx context.Context, sc *scope, row journal.Row, f Files, to journal.Checkpoint) (p intoPlan, err error) {
	at := s.end(ctx, row, holdfast.CheckpointDirect)
	if f.Borrowed {
		at = s.foundAt(ctx, row)
	}
	if err := s.take(ctx, sc, row, f, at); err != nil {
		return p, err
	}
	if p.from, _, err = s.base(ctx, sc, f); err != nil {
		return p, err
	}
	if to.ID == "" || to.Workspace == "" || p.from.Workspace == "" {
		return p, unknownFiles(row, f, "the files of then or of now are in no checkpoint")
	}
	if p.src, err = s.source(ctx, p.from, to); err != nil {
		return p, err
	}
	if p.Plan, err = s.steps(ctx, f, p.src, p.from, to); err != nil || !f.Borrowed {
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

// steps returns the plan from one checkpoint's workspace to another's.
func (p *Points) steps(ctx context.Context, f Files, src tree.Source, from, to journal.Checkpoint) (edit.Plan, error) {
	a, err := rootsOf(from)
	if err != nil {
		return edit.Plan{}, err
	}
	b, err := rootsOf(to)
	if err != nil {
		return edit.Plan{}, err
	}
	out, err := f.leaves(ctx, 0, src, a[0], b[0])
	if err != nil {
		return edit.Plan{}, err
	}
	return edit.Make(ctx, src, a[0], b[0], out.out)
}

// since returns the files and links that others changed after a checkpoint was stored; conflict if that is not known.
func (s *Snapshots) since(ctx context.Context, row journal.Row, f Files, to journal.Checkpoint) (map[string]bool, error) {
	dropped, err := s.cfg.Store.Dropped(ctx, row.ID, []journal.Span{{After: 0, Upto: row.LastSeq}}, to.Seq)
	if err != nil {
		return nil, err
	}
	if dropped {
		return nil, unknownFiles(row, f, "checkpoints after it were removed, so that nobody knows whose changes would be lost")
	}
	all, err := s.history(ctx, row)
	if err != nil {
		return nil, err
	}
	for _, cp := range all {
		if cp.Order > to.Order && cp.Workspace == "" {
			return nil, unknownFiles(row, f, "the directory had no checkpoints for some time after it, so that nobody knows whose changes would be lost")
		}
	}
	paths := map[string]bool{}
	return paths, s.others(ctx, row, f, func(cp journal.Checkpoint) bool { return cp.Order > to.Order }, paths)
}

func unknownFiles(row journal.Row, f Files, why string) error {
	return holdfast.Errorf(holdfast.KindConflict, "session.rewind", "the files of %s cannot go back to this checkpoint: %s", holdfast.Quote(f.path(0)), why).
		WithHint("without --files the conversation goes back alone; holdfast session checkpoints %s lists others", row.ID)
}

// conflicting returns the error of a rewind that would undo what others did.
func conflicting(row journal.Row, f Files, paths []string) error {
	return holdfast.Errorf(holdfast.KindConflict, "session.rewind", "nothing was changed in %s: others have changed, since the checkpoint, files that the rewind would write or remove: %s",
		holdfast.Quote(f.path(0)), some(paths)).
		WithHint("holdfast session fork %s --at CHECKPOINT makes a copy with the files of then; without --files the conversation goes back alone", row.ID)
}

// editor returns what changes single files of a borrowed workspace.
func (s *Snapshots) editor(f Files, src tree.Source, kept, to journal.Checkpoint) *edit.Editor {
	return &edit.Editor{
		Dir: f.path(0), Source: src, Owner: f.Owners.Agent, Now: s.cfg.Clock(), Tag: string(kept.ID + to.ID),
		At: func(point string) { s.cfg.At(to.Session, point) },
	}
}

// rewindInto is Rewind for the files of a borrowed workspace. New files are written beside those that they replace, and everything
// is checked, before the change is committed. From then on the files of the plan get in their places, by this server or
// the next one.
func (s *Snapshots) rewindInto(ctx context.Context, sc *scope, row journal.Row, f Files, to journal.Checkpoint, change func(c *journal.Change, kept holdfast.CheckpointID)) error {
	s.into.Lock()
	defer s.into.Unlock()
	p, err := s.planInto(ctx, sc, row, f, to)
	if err != nil {
		return err
	}
	if len(p.conflicts) > 0 {
		return conflicting(row, f, p.conflicts)
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
		return holdfast.Errorf(holdfast.KindConflict, "session.rewind", "nothing was changed in %s: somebody works on its files", holdfast.Quote(f.path(0))).
			WithHint("repeat the rewind")
	}
	mark := journal.Restore{Scope: f.Scope, Session: to.Session, Checkpoint: to.ID}
	c := journal.NewChange(row.ID)
	c.Files = &journal.FilesChange{Restore: &mark}
	change(&c, kept.ID)
	if err := s.stage(ctx, row, f, p, kept, to); err != nil {
		return errors.Join(err, unstage(f))
	}
	s.cfg.At(row.ID, "ready")
	ctx, sc.newest = context.WithoutCancel(ctx), nil
	if _, err := s.cfg.Journal.Commit(ctx, c); err != nil {
		return err // the next use of the files learns from the mark whether the commit happened
	}
	s.cfg.At(row.ID, "rewound")
	sc.ready = false
	if err := s.finish(ctx, sc, row, f, mark); err != nil {
		return err
	}
	sc.ready = true
	if row, err = s.cfg.Sessions.Row(ctx, row.ID); err == nil {
		s.rejoin(ctx, sc, row, f, holdfast.CheckpointDirect)
	}
	return err
}

// stage writes the new files of a plan beside those that they replace, and checks that the plan still fits.
func (s *Snapshots) stage(ctx context.Context, row journal.Row, f Files, p intoPlan, kept, to journal.Checkpoint) error {
	e := s.editor(f, p.src, kept, to)
	if err := writeRewinding(f, rewinding{Kept: kept.ID, To: to.ID}, e.Staged(p.Plan)); err != nil {
		return err
	}
	if err := e.Stage(ctx, p.Plan); err != nil {
		return err
	}
	conflicts, err := e.Check(ctx, p.Plan)
	if err == nil && len(conflicts) > 0 {
		err = conflicting(row, f, conflicts)
	}
	return err
}

// finishInto is finish for a borrowed workspace: it carries out the plan of the rewind that its mark and its record describe.
// A mark without a record is removed, and changes nothing.
func (s *Snapshots) finishInto(ctx context.Context, sc *scope, row journal.Row, f Files, mark journal.Restore) error {
	rec, err := readRewinding(f)
	if err != nil {
		return err
	}
	var left []string
	text := ""
	if rec.To != mark.Checkpoint {
		text = fmt.Sprintf("A rewind of the files of %s to checkpoint %s was interrupted before it began. No file was changed.", f.path(0), mark.Checkpoint)
	} else {
		if left, err = s.place(ctx, f, row, mark, rec); holdfast.IsKind(err, holdfast.KindNotFound) {
			left, err = s.place(ctx, f, row, mark, rec) // a pack was replaced by another meanwhile
		}
		if err != nil {
			return err
		}
		if len(left) > 0 {
			text = fmt.Sprintf("Somebody changed files of %s during the rewind to checkpoint %s. They stay as they are: %s. Checkpoint %s has the files from before the rewind.",
				f.path(0), mark.Checkpoint, some(left), rec.Kept)
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
	return unstage(f)
}

// place puts the files of a rewind in their places: the home directory as a whole, and those of the plan in the workspace. It
// returns the paths that somebody changed meanwhile.
func (s *Snapshots) place(ctx context.Context, f Files, row journal.Row, mark journal.Restore, rec rewinding) ([]string, error) {
	to, err := s.cfg.Store.Checkpoint(ctx, mark.Session, mark.Checkpoint)
	if err != nil {
		return nil, err
	}
	kept, err := s.cfg.Store.Checkpoint(ctx, row.ID, rec.Kept)
	if err != nil {
		return nil, err
	}
	src, err := s.source(ctx, kept, to)
	if err != nil {
		return nil, err
	}
	p, err := s.steps(ctx, f, src, kept, to)
	if err != nil {
		return nil, err
	}
	if err := s.replace(ctx, f, kept, to); err != nil {
		return nil, err
	}
	return s.editor(f, src, kept, to).Apply(ctx, p)
}

// rewindingFile is a file beside the trees that describes a rewind into a borrowed workspace while it goes on.
const rewindingFile = "rewinding"

// rewinding is what it holds: the checkpoints between which the rewind goes, and the paths of the staged files.
type rewinding struct {
	Kept   holdfast.CheckpointID `json:"kept"`
	To     holdfast.CheckpointID `json:"to"`
	Staged [][]byte              `json:"staged"`
}

func writeRewinding(f Files, r rewinding, staged []string) error {
	for _, p := range staged {
		r.Staged = append(r.Staged, []byte(p)) // a path may be no text
	}
	data, err := json.Marshal(r)
	if err == nil {
		err = durable.Replace(filepath.Join(f.Dir, rewindingFile), durable.Bytes(data))
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "session.rewind", "%w", err).WithHint("free space on the disk of the data directory")
	}
	return nil
}

// readRewinding returns the zero rewinding if there is no record.
func readRewinding(f Files) (r rewinding, err error) {
	data, err := os.ReadFile(filepath.Join(f.Dir, rewindingFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return r, holdfast.Errorf(holdfast.KindInternal, "session.rewind", "the record of a rewind cannot be read: %w", err)
	}
	return r, nil
}

// unstage removes the staged files of a rewind that does not go on, and its record.
func unstage(f Files) error {
	r, err := readRewinding(f)
	if err != nil || r.To == "" {
		return err
	}
	if exists(f.path(0)) {
		staged := make([]string, len(r.Staged))
		for i, p := range r.Staged {
			staged[i] = string(p)
		}
		if err := edit.Clean(f.path(0), staged); err != nil {
			return err
		}
	}
	if err = os.Remove(filepath.Join(f.Dir, rewindingFile)); err == nil {
		err = durable.SyncDir(f.Dir)
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "session.rewind", "%w", err)
	}
	return nil
}

// cutReport says what a power cut may have taken from a borrowed workspace. back are the paths of the home directory that
// were put back.
func (s *Snapshots) cutReport(ctx context.Context, f Files, target, present journal.Checkpoint, back []string) (string, error) {
	var missing, empty, other []string
	err := s.trees(ctx, target, present, func(i int, src tree.Source, a, b pack.ID) error {
		p := edit.Plan{}
		var err error
		if i == 0 {
			p, err = s.steps(ctx, f, src, target, present)
		}
		for _, step := range p.Steps {
			switch path := shown(0, step.Path); {
			case step.New.Type == 0:
				missing = append(missing, path)
			case step.New.Type == tree.File && step.New.Size == 0:
				empty = append(empty, path)
			default:
				other = append(other, path)
			}
		}
		return err
	})
	text := fmt.Sprintf("The machine lost power. The files of %s were compared with checkpoint %s, and stay as they are.", f.path(0), target.ID)
	for _, l := range []struct {
		what  string
		paths []string
	}{{"Missing", missing}, {"Empty", empty}, {"Different", other}, {"Put back in the home directory", back}} {
		if len(l.paths) > 0 {
			text += fmt.Sprintf(" %s: %s.", l.what, some(l.paths))
		}
	}
	return text, err
}
