package snapshot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/edit"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
)

// Ready must return without an error before anything uses the files of a session in its box. At the first call for a
// scope after the server's start it finishes an interrupted replacement of the files, or else takes a snapshot of
// changes that the former server did not store. It fails if it cannot finish the replacement, because then some files
// are those of another checkpoint, or if an error that may go away keeps it from comparing the files after a power cut.
func (s *Snapshots) Ready(ctx context.Context, row journal.Row) error {
	_, _, unlock, err := s.acquire(ctx, row)
	if err == nil {
		unlock()
	}
	return err
}

// acquire does what Ready does, and locks the scope: no other caller reads or replaces the files until unlock is
// called.
func (s *Snapshots) acquire(ctx context.Context, row journal.Row) (f Files, sc *scope, unlock func(), err error) {
	if f, err = s.cfg.Boxes.Files(ctx, row); err == nil {
		sc, unlock, err = hold(ctx, s, row, f)
	}
	return f, sc, unlock, err
}

// hold does what acquire does, for a caller that has already looked up the Files.
func hold(ctx context.Context, s *Snapshots, row journal.Row, f Files) (sc *scope, unlock func(), err error) {
	sc, unlock = s.lock(f.Scope)
	if err = held(ctx, s, sc, row, f); err != nil {
		unlock()
		return nil, nil, err
	}
	return sc, unlock, nil
}

// held does what hold does, but the caller has already locked the scope.
func held(ctx context.Context, s *Snapshots, sc *scope, row journal.Row, f Files) (err error) {
	if err = f.there(row); err == nil && !sc.ready {
		err = prepare(ctx, s, sc, row, f)
		sc.ready = err == nil
	}
	return err
}

// prepare does the work of Ready for a scope whose files are not ready. The caller has locked the scope.
func prepare(ctx context.Context, s *Snapshots, sc *scope, row journal.Row, f Files) error {
	for i := range names {
		if own, ok := f.own(i); ok {
			_ = own.sweep() // the error is ignored: nothing reads what is left, and the next server tries again
		}
	}
	mark, marked, err := s.cfg.Store.RestoreOf(ctx, f.Scope)
	if err == nil && !marked && f.Borrowed {
		err = edit.Unstage(f.Dir, f.tree())
	}
	switch {
	case err != nil:
		return err
	case marked:
		if err := s.finish(ctx, sc, row, f, mark); err != nil {
			return err
		}
		return s.rejoin(ctx, sc, row, f, holdfast.CheckpointLate)
	case f.Had && exists(f.path(0)):
		cut, err := s.late(ctx, sc, row, f)
		if err != nil {
			s.failed(ctx, row, "", err)
			_, marked, merr := s.cfg.Store.RestoreOf(ctx, f.Scope)
			if cut && (marked || merr != nil || !hopeless(err)) {
				return err // a later snapshot would record files that the power cut took as deleted
			}
		}
	}
	return nil
}

// hopeless reports whether a comparison after a power cut would fail again: what it compares is gone, damaged or too
// large.
func hopeless(err error) bool {
	return errors.Is(err, pack.ErrDamaged) || holdfast.IsKind(err, holdfast.KindNotFound) || holdfast.IsKind(err, holdfast.KindTooLarge)
}

// late takes a snapshot of changes that the former server did not store. If the machine lost power and the files were
// not compared since, late compares them, puts back what was lost, and returns cut = true.
func (s *Snapshots) late(ctx context.Context, sc *scope, row journal.Row, f Files) (cut bool, err error) {
	at, direct := s.cfg.LastCut(row.ID)
	if at.IsZero() || comparedAt(f).Equal(at) {
		return false, s.take(ctx, sc, row, f, func(x *scanned) (moment, error) {
			m, err := missed(ctx, s, row, x.newest())
			if err == nil && f.Borrowed && !m.own {
				m.reason, err = whose(ctx, s, sc, row, f)
			}
			return m, err
		})
	}
	if err := s.afterCut(ctx, sc, row, f, at, direct); err != nil {
		return true, err
	}
	return true, setCompared(f, at)
}

// missed returns the moment of a late snapshot whose newest change is of the time newest: the end of the last turn, if
// that has no checkpoint, no call, import or rewind followed it, and nothing changed after it; else the end of the log.
func missed(ctx context.Context, s *Snapshots, row journal.Row, newest time.Time) (moment, error) {
	last, err := s.ended(ctx, row)
	at := moment{reason: holdfast.CheckpointLate, seq: row.LastSeq, turn: last.ID, number: last.Number}
	// The time of a turn's end is stored in whole milliseconds, so a change up to one millisecond later may be the turn's.
	if err != nil || last.ID == "" || last.EndedAt == nil || newest.After(last.EndedAt.Add(time.Millisecond)) {
		return at, err
	}
	_, err = s.cfg.Store.Checkpoint(ctx, row.ID, holdfast.CheckpointID(last.ID))
	if !holdfast.IsKind(err, holdfast.KindNotFound) {
		return at, err
	}
	for ev, err := range s.cfg.Journal.Read(ctx, row.ID, last.EndSeq) {
		switch {
		case err != nil:
			return at, err
		case ev.Type == holdfast.EventToolStarted, ev.Type == holdfast.EventFilesImported, ev.Type == holdfast.EventSessionRewound:
			return at, nil
		}
	}
	at.own, at.seq = true, last.EndSeq
	return at, nil
}

// Newest implements the engine's Snapshots: it returns the id of the checkpoint from which the files of a session are
// restored if they are gone; "" if no checkpoint has them.
func (p *Points) Newest(ctx context.Context, row journal.Row) (string, error) {
	f, err := p.cfg.Boxes.Files(ctx, row)
	if err == nil {
		err = f.there(row)
	}
	if err != nil {
		return "", err
	}
	if mark, marked, err := p.cfg.Store.RestoreOf(ctx, f.Scope); err != nil || marked {
		return string(mark.Checkpoint), err
	}
	spans, err := p.cfg.Branch(ctx, row.ID, row.LastSeq)
	if err != nil {
		return "", err
	}
	cp, _, err := p.cfg.Store.Within(ctx, row.ID, spans)
	// A checkpoint of the home directory alone does not replace the files of a session that had a workspace.
	if cp.Workspace == "" && (f.Had || cp.Home == "") {
		return "", err
	}
	return string(cp.ID), err
}

// Restore implements the engine's Snapshots: it restores missing files from a checkpoint. The box does not run. If the
// server ends meanwhile, Ready of the next server finishes the work.
func (s *Snapshots) Restore(ctx context.Context, row journal.Row, checkpoint string) error {
	f, err := s.cfg.Boxes.Files(ctx, row)
	if err == nil && f.Borrowed {
		err = f.refuse(row)
	}
	if err != nil {
		return err
	}
	sc, unlock := s.lock(f.Scope)
	defer unlock()
	to, err := s.cfg.Store.Checkpoint(ctx, row.ID, holdfast.CheckpointID(checkpoint))
	if err != nil {
		return err
	}
	c := journal.NewChange(row.ID)
	c.Files = &journal.FilesChange{}
	if ran, err := s.ran(ctx, row, to.Seq, false); err != nil {
		return err
	} else if ran {
		c.Events = []journal.Draft{compared(fmt.Sprintf("The files were gone. They are again what they were at checkpoint %s of %s; what calls changed in them afterwards is lost.",
			to.ID, to.CreatedAt.Format(time.DateTime+" UTC")))}
	}
	return s.replaceBy(ctx, sc, row, f, to, c)
}

// replaceBy commits a change that marks the files as being replaced, and replaces them by those of a checkpoint. If the
// checkpoint cannot be read, it does neither. After an error the scope is not ready, so that the next use looks for the
// mark: it may be unknown whether the commit succeeded.
func (s *Snapshots) replaceBy(ctx context.Context, sc *scope, row journal.Row, f Files, to journal.Checkpoint, c journal.Change) error {
	c.Files.Restore = &journal.Restore{Scope: f.Scope, Session: to.Session, Checkpoint: to.ID}
	sc.ready = false
	if _, err := replaceBase(ctx, s, sc, f, *c.Files.Restore, true); err != nil {
		return err
	}
	if _, err := s.cfg.Journal.Commit(ctx, c); err != nil {
		return err
	}
	s.cfg.At(row.ID, "rewound")
	err := s.finish(ctx, sc, row, f, *c.Files.Restore)
	sc.ready = err == nil
	return err
}

// finish replaces the files by those of the checkpoint that the database's mark names, and removes the mark.
func (s *Snapshots) finish(ctx context.Context, sc *scope, row journal.Row, f Files, mark journal.Restore) error {
	s.cfg.At(row.ID, "restoring")
	if f.Borrowed {
		return finishInto(ctx, s, sc, row, f, mark)
	}
	to, err := replaceBase(ctx, s, sc, f, mark, false)
	if err != nil {
		return err
	}
	s.cfg.At(row.ID, "restored")
	c := journal.NewChange(row.ID)
	c.Files = &journal.FilesChange{Restore: &journal.Restore{Scope: f.Scope}}
	if _, err = s.cfg.Journal.Commit(context.WithoutCancel(ctx), c); err != nil {
		return err
	}
	sc.base, sc.newest, sc.clean = &to, nil, false // not clean: the checkpoint may be outside of the session's branch
	return nil
}

// replaceBase replaces the files by those of mark's checkpoint, which it returns; with dryRun it only checks the files.
func replaceBase(ctx context.Context, s *Snapshots, sc *scope, f Files, mark journal.Restore, dryRun bool) (to journal.Checkpoint, err error) {
	for range 2 {
		if to, err = s.cfg.Store.Checkpoint(ctx, mark.Session, mark.Checkpoint); err != nil {
			return to, err
		}
		// While the database has the mark no snapshot is taken, so the files are those of base, or some are replaced already.
		var from journal.Checkpoint
		if from, _, err = s.base(ctx, sc, f); err == nil {
			err = s.replace(ctx, f, from, to, dryRun)
		}
		if !holdfast.IsKind(err, holdfast.KindNotFound) {
			break
		}
		// A pack was replaced by another since it was looked up: try once more.
	}
	return to, err
}

func (p *Points) source(ctx context.Context, from, to journal.Checkpoint) (*pack.Reader, error) {
	set, err := p.packs(ctx, to)
	if err != nil {
		return nil, err
	}
	old, err := p.packs(ctx, from)
	return p.cfg.Packs.In(append(set, old...)), err
}

func (p *Points) both(ctx context.Context, from, to journal.Checkpoint) (a, b roots, src *pack.Reader, err error) {
	if a, err = rootsOf(from); err == nil {
		b, err = rootsOf(to)
	}
	if err == nil {
		src, err = p.source(ctx, from, to)
	}
	return a, b, src, err
}

// replace changes the trees of a scope, except a borrowed workspace, from those of one checkpoint to those of another,
// in place. It restores a tree that is gone under another name, and renames it. It may be repeated. With dryRun it only
// reads the entries that it would change, and checks that the packs have the content of their files.
func (s *Snapshots) replace(ctx context.Context, f Files, from, to journal.Checkpoint, dryRun bool) error {
	was, will, src, err := s.both(ctx, from, to)
	if err != nil {
		return err
	}
	for i := range names {
		own, ok := f.own(i)
		if !exists(own.dir) {
			was[i] = pack.ID{}
		}
		switch {
		case !ok || will.text(i) == "": // a borrowed tree stays; so does a tree that the checkpoint does not have yet
		case dryRun:
			for c, derr := range tree.Diff(ctx, src, was[i], will[i]) {
				if err = derr; err == nil && c.New.Type == tree.File && !c.New.SameContent(c.Old) {
					err = tree.Present(ctx, src, c.New, src.Has)
				}
				if err != nil {
					return err
				}
			}
		case was.text(i) != "":
			err = own.apply(ctx, src, was[i], will[i], f.Owners)
		default:
			if err = own.restore(ctx, src, will[i], f.Owners); err == nil {
				s.cfg.At(to.Session, "renamed")
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
