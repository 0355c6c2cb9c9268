package snapshot

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/background"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/recall"
	"github.com/holdfast-run/holdfast/internal/stages"
)

const restTime = 3 * time.Second // after people worked on files outside of turns, this time passes before the snapshot of that work

var _ stages.Stage = (*Snapshots)(nil)

// Name implements stages.Stage.
func (s *Snapshots) Name() string { return "snapshot" }

// After implements stages.Stage: it takes the snapshot of an ended turn, in place of one that is due, unless nothing
// can have changed the files since the last. If that fails, it records an event; the next snapshot has the changes.
func (s *Snapshots) After(ctx context.Context, t stages.Settled) error {
	if !t.Row.HadFiles {
		return nil
	}
	f, sc, unlock, err := s.acquire(ctx, t.Row) // the files may not be ready yet, because the turn has not used them
	if err != nil {
		return err
	}
	defer unlock()
	if due := s.later.Disarm(t.Row.ID); due == "" && t.Idle && sc.clean {
		return nil
	}
	s.failed(ctx, t.Row, t.Turn, s.take(ctx, sc, t.Row, f, func(*scanned) (moment, error) {
		return moment{reason: holdfast.CheckpointTurn, own: true, seq: t.Seq, turn: t.Turn, number: t.Number}, nil
	}))
	return nil
}

// Touching implements the engine's Snapshots: it is called before people work in a session's box, and the function done
// after the work. It first takes a snapshot of what others have changed in a borrowed workspace, because after the work
// nobody could tell who changed what. When nobody has worked for restTime, a snapshot of the work is taken.
func (s *Snapshots) Touching(ctx context.Context, id holdfast.SessionID) (done func(worked bool)) {
	if s.later.Working(id) {
		storeFound(ctx, s, id)
	}
	return func(worked bool) {
		s.later.Worked(id)
		if worked {
			s.later.Arm(id, holdfast.CheckpointDirect, restTime)
		}
	}
}

// storeFound takes a snapshot of what others changed in a session's borrowed workspace, unless a turn of the session runs.
func storeFound(ctx context.Context, s *Snapshots, id holdfast.SessionID) {
	row, err := s.cfg.Sessions.Row(ctx, id)
	if err != nil {
		return // people's work itself will fail and report the error
	}
	f, err := s.cfg.Boxes.Files(ctx, row)
	if err != nil || !f.Borrowed || f.there(row) != nil {
		return
	}
	s.later.Now(ctx, id, restTime, func(ctx context.Context, row journal.Row) {
		sc, unlock, err := hold(ctx, s, row, f)
		if err == nil {
			err = s.take(ctx, sc, row, f, foundAt(ctx, s, row))
			unlock()
		}
		s.failed(ctx, row, "", err)
	})
}

// Stopped starts a snapshot of a session whose box has ended, and does not wait for it.
func (s *Snapshots) Stopped(id holdfast.SessionID) { s.later.Arm(id, holdfast.CheckpointStop, 0) }

// Take takes a snapshot outside of a turn, if the files changed. No turn of the scope runs. A failure becomes an event.
func (s *Snapshots) Take(ctx context.Context, row journal.Row, reason holdfast.CheckpointReason) {
	outside(ctx, s, row, reason, false)
}

// outside does what Take does. worked says that people have just worked in the session's box; if not, changes of a
// borrowed workspace outside of turns were made by somebody else.
func outside(ctx context.Context, s *Snapshots, row journal.Row, reason holdfast.CheckpointReason, worked bool) {
	if !row.HadFiles {
		return
	}
	f, sc, unlock, err := s.acquire(ctx, row)
	if err == nil {
		defer unlock()
		at := s.end(ctx, row, reason)
		if f.Borrowed && !worked && s.later.Disarm(row.ID) != holdfast.CheckpointDirect {
			at = foundAt(ctx, s, row)
		}
		err = s.take(ctx, sc, row, f, at)
	}
	s.failed(ctx, row, "", err)
}

// end returns a function that take calls for the moment of the snapshot: here it is the end of the session's log.
func (s *Snapshots) end(ctx context.Context, row journal.Row, reason holdfast.CheckpointReason) func(*scanned) (moment, error) {
	return func(*scanned) (moment, error) {
		last, err := s.ended(ctx, row)
		return moment{reason: reason, seq: row.LastSeq, turn: last.ID, number: last.Number}, err
	}
}

// take takes a snapshot, if the files differ from those of the scope's last checkpoint. at returns the moment to which
// the scanned files belong. The caller has locked the scope.
func (s *Snapshots) take(ctx context.Context, sc *scope, row journal.Row, f Files, at func(*scanned) (moment, error)) (err error) {
	for range 2 {
		l := look{row: row, files: f, memory: remembered(s, sc), sure: sc.clean}
		sc.clean = false
		if next := l.memory.Look([2]string{f.path(0), f.path(1)}, s.cfg.Clock()); next != nil {
			s.memories.Put(sc, next)
			err = nil
			break
		}
		l.alive = s.cfg.Boxes.Alive(ctx, row)
		background.Run(func(slowly func()) {
			l.slowly = slowly
			err = s.takeOnce(ctx, sc, l, at)
		})
		if !holdfast.IsKind(err, holdfast.KindConflict) && !holdfast.IsKind(err, holdfast.KindNotFound) {
			break
		}
		sc.newest = nil // a pack that the snapshot needs was removed meanwhile: try again, and read the newest checkpoint again
	}
	sc.clean = err == nil
	return err
}

// remembered removes the memory of a scope's files and returns it; nil if it is not about the scope's newest
// checkpoint.
func remembered(s *Snapshots, sc *scope) *recall.Memory {
	m := s.memories.Take(sc)
	if m == nil || sc.base != nil || m.Newest != sc.newest || s.cfg.Store.Relisted() != sc.relisted {
		return nil
	}
	return m
}

// takeOnce does the work of take, with a scan. If a pack was removed meanwhile, take calls it a second time.
func (s *Snapshots) takeOnce(ctx context.Context, sc *scope, l look, at func(*scanned) (moment, error)) error {
	row, f := l.row, l.files
	began := s.cfg.Clock()
	last, packs, err := s.base(ctx, sc, f)
	if err != nil {
		return err
	}
	x, err := s.scan(ctx, l, last, packs)
	defer x.close()
	if err != nil {
		return err
	}
	if f.Had && x.scans[0] == nil && x.off == nil {
		when, err := at(x)
		return cmp.Or(err, gone(ctx, &s.Points, l, last, when.reason == holdfast.CheckpointDirect))
	}
	same := x.same
	if same && !l.sure {
		// After a rewind the checkpoint with the same files may be outside of the session's present branch. Even the target
		// of the rewind is, if that is later than the end of its turn.
		spans, err := s.cfg.Branch(ctx, row.ID, max(row.LastSeq, last.Seq))
		if same = err == nil && holds(spans, last.Seq); same {
			// If the last turn's snapshot failed, store even unchanged files: then a checkpoint from after that turn has them.
			ended, err := s.ended(ctx, row)
			same = err == nil && s.kept(ctx, row, ended) == nil
		}
	}
	if same && sc.base == nil {
		s.saved(x, row)
		// If no process was alive, a call of another session may have started one since the scan: then remember nothing.
		if l.alive || !s.cfg.Boxes.Alive(ctx, row) {
			s.memories.Put(sc, x.memory(sc.newest))
		}
		return x.awake()
	}
	when, err := at(x)
	if err != nil {
		return err
	}
	// Before a rewind the files are stored as the newest checkpoint even if nothing changed: if the server ends in the
	// rewind, the next one learns from the newest checkpoint which files were there.
	if same && when.reason != holdfast.CheckpointKept {
		s.saved(x, row)
		return x.awake()
	}
	stored, written, err := s.keep(ctx, row, f, x, when, began, x.switched(f, last)...)
	if err != nil {
		return err
	}
	sc.base, sc.newest, sc.packs = nil, &stored, append(written, packs...)
	return x.awake()
}

// base returns the checkpoint that had the scope's files when they were last read, and the packs that contain it. If
// the scope has no checkpoint, it returns an empty one and no packs.
func (s *Snapshots) base(ctx context.Context, sc *scope, f Files) (cp journal.Checkpoint, packs pack.Set, err error) {
	if sc.base != nil {
		sc.relisted = s.cfg.Store.Relisted()
		packs, err = s.packs(ctx, *sc.base)
		return *sc.base, packs, err
	}
	if now := s.cfg.Store.Relisted(); sc.newest == nil || now != sc.relisted {
		sc.newest, sc.relisted = nil, now
		if cp, _, err = s.cfg.Store.Newest(ctx, f.Scope); err != nil {
			return cp, nil, err
		}
		if packs, err = s.packs(ctx, cp); err != nil {
			return cp, nil, err
		}
		sc.newest, sc.packs = &cp, packs
	}
	return *sc.newest, sc.packs, nil
}

// failed records that a snapshot was not taken, unless err is nil. While the server shuts down it records nothing,
// because the next server takes the snapshot.
func (s *Snapshots) failed(ctx context.Context, row journal.Row, turn holdfast.TurnID, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	s.cfg.Log.WarnContext(ctx, "a snapshot of a session's files was not taken", "session_id", row.ID, "error", err)
	s.cfg.Journal.Note(ctx, s.cfg.Log, row.ID, journal.Draft{Type: holdfast.EventSnapshotFailed, Turn: turn, Data: holdfast.Failure{
		Kind: holdfast.KindOf(err), Message: journal.Plain(err.Error()), Hint: holdfast.HintOf(err),
	}})
}
