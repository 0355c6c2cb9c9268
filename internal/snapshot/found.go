package snapshot

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/coded"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/told"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
)

const mostFound = 50 // how many paths Found returns at most

// Found takes a snapshot of changes that others made to a session's borrowed workspace outside of the session's turns.
// It returns the paths of the files and links that others changed since the session's last turn: the first 50 in their
// order, and the number of the rest. It is called before a turn, while no turn of the scope runs. It does nothing for a
// session without a borrowed workspace, and returns no paths if the workspace had no checkpoint before.
func Found(ctx context.Context, s *Snapshots, row journal.Row) (paths []string, more int, err error) {
	f, err := s.cfg.Boxes.Files(ctx, row)
	if err != nil || !f.Borrowed {
		return nil, 0, err
	}
	sc, unlock := s.lock(f.Scope)
	defer unlock()
	if sc.ready && sc.base == nil && sc.newest != nil && sc.newest == sc.told && s.memories.Same(sc, sc.newest, f.path(0), s.cfg.Clock()) {
		return nil, 0, nil
	}
	if err = held(ctx, s, sc, row, f); err == nil {
		err = s.take(ctx, sc, row, f, foundAt(ctx, s, row))
	}
	if err != nil || sc.newest != nil && sc.newest == sc.told {
		return nil, 0, err // no checkpoint was stored since the last call of Found
	}
	defer func() {
		if err == nil {
			sc.told = sc.newest
		}
	}()
	if row, err = s.cfg.Sessions.Row(ctx, row.ID); err != nil {
		return nil, 0, err
	}
	last, err := s.ended(ctx, row)
	if err != nil {
		return nil, 0, err
	}
	list, err := history(ctx, &s.Points, row)
	if err != nil {
		return nil, 0, err
	}
	all := map[string]bool{}
	err = changes(ctx, &s.Points, f, list, func(cp journal.Checkpoint) bool { return byOthers(cp) && cp.Seq > last.EndSeq && !cp.Abandoned }, all)
	for _, p := range slices.Sorted(maps.Keys(all)) {
		if len(paths) < mostFound {
			paths = append(paths, shown(0, p))
		}
	}
	return paths, len(all) - len(paths), err
}

// Announce implements the engine's Snapshots: it takes the snapshot that is due, so that the turn can be undone, and
// tells the agent and the user, in a notice of the turn, which files others changed since the turn before. If a
// snapshot fails, it records an event, and the turn runs all the same.
func (s *Snapshots) Announce(ctx context.Context, row journal.Row, turn holdfast.TurnID) error {
	if due := s.later.Disarm(row.ID); due != "" {
		outside(ctx, s, row, due, due == holdfast.CheckpointDirect)
	}
	paths, more, err := Found(ctx, s, row)
	if err != nil {
		s.failed(ctx, row, turn, err)
		return nil
	}
	if len(paths) == 0 {
		return nil
	}
	c := journal.NewChange(row.ID)
	c.Events = []journal.Draft{{Type: holdfast.EventNotice, Turn: turn, Data: holdfast.Notice{
		Code: holdfast.NoticeFilesFound, Text: journal.Plain(told.Found(paths, more)),
	}}}
	_, err = s.cfg.Journal.Commit(ctx, c)
	return err
}

// foundAt is Snapshots.end for changes that others made, with the reason CheckpointFound. If the last turn's snapshot
// failed, the turn may have made the changes, and the reason is CheckpointLate.
func foundAt(ctx context.Context, s *Snapshots, row journal.Row) func(*scanned) (moment, error) {
	return func(x *scanned) (moment, error) {
		m, err := s.end(ctx, row, holdfast.CheckpointFound)(x)
		if err != nil || m.turn == "" {
			return m, err
		}
		t, err := s.cfg.Sessions.Turn(ctx, row.ID, m.turn)
		if err == nil {
			err = s.kept(ctx, row, t)
		}
		if holdfast.IsKind(err, holdfast.KindConflict) {
			m.reason, err = holdfast.CheckpointLate, nil
		}
		return m, err
	}
}

// whose returns the reason of a checkpoint with changes that a former server did not store: CheckpointFound (others
// made them), or CheckpointLate if a call or a rewind since the newest checkpoint may have made them.
func whose(ctx context.Context, s *Snapshots, sc *scope, row journal.Row, f Files) (holdfast.CheckpointReason, error) {
	last, _, err := s.base(ctx, sc, f)
	if err != nil {
		return holdfast.CheckpointLate, err
	}
	ran, err := s.ran(ctx, row, last.Seq, false)
	if err != nil || ran {
		return holdfast.CheckpointLate, err
	}
	for ev, err := range s.cfg.Journal.Read(ctx, row.ID, last.Seq) {
		if err != nil {
			return holdfast.CheckpointLate, err
		}
		if ev.Type != holdfast.EventSessionRewound {
			continue
		}
		var r holdfast.Rewound
		if err := ev.Decode(&r); err != nil {
			return holdfast.CheckpointLate, err
		}
		if _, files, err := s.Find(ctx, row, r.Checkpoint); r.Files == holdfast.FilesRestored && (err != nil || files.Workspace != last.Workspace) {
			return holdfast.CheckpointLate, nil
		}
	}
	return holdfast.CheckpointFound, nil
}

// history returns all stored checkpoints of a session in the order in which they were stored.
func history(ctx context.Context, p *Points, row journal.Row) (all []journal.Checkpoint, err error) {
	for before := (journal.Place{}); ; {
		list, err := p.cfg.Store.Checkpoints(ctx, row.ID, before, coded.MostPage)
		if err != nil || len(list) == 0 {
			slices.SortFunc(all, func(a, b journal.Checkpoint) int { return cmp.Compare(a.Order, b.Order) })
			return all, err
		}
		all, before = append(all, list...), list[len(list)-1].Place()
	}
}

// byOthers reports whether a checkpoint of a borrowed workspace has changes that its session did not make. Changes that
// a snapshot before a rewind or after a power cut (CheckpointKept) found count as changes by others.
func byOthers(cp journal.Checkpoint) bool {
	return cp.Reason == holdfast.CheckpointFound || cp.Reason == holdfast.CheckpointKept
}

// changes adds to paths the files and links of a borrowed workspace that changed between a checkpoint of the list all
// and the one before it in the list, for each checkpoint that the function which selects.
func changes(ctx context.Context, p *Points, f Files, all []journal.Checkpoint, which func(journal.Checkpoint) bool, paths map[string]bool) error {
	for i := 1; i < len(all); i++ {
		if which(all[i]) {
			if err := changed(ctx, p, f, all[i-1], all[i], paths); err != nil {
				return err
			}
		}
	}
	return nil
}

func changed(ctx context.Context, p *Points, f Files, before, cp journal.Checkpoint, paths map[string]bool) error {
	if before.Workspace == cp.Workspace {
		return nil
	}
	return p.trees(ctx, before, cp, func(i int, src tree.Source, a, b pack.ID) error {
		if i > 0 {
			return nil
		}
		out, err := f.leaves(ctx, i, src, a, b, false)
		if err != nil {
			return err
		}
		for c, err := range tree.Diff(ctx, src, a, b) {
			if err != nil {
				return err
			}
			if same(c.Old, c.New) || c.Old.Type != tree.File && c.Old.Type != tree.Symlink && c.New.Type != tree.File && c.New.Type != tree.Symlink {
				continue
			}
			left, err := untouched(out, c)
			if err != nil {
				return err
			}
			if !left {
				paths[c.Path] = true
			}
		}
		return nil
	})
}
