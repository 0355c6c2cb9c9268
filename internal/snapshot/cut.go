package snapshot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/background"
	"github.com/holdfast-run/holdfast/internal/snapshot/coded"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/told"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
)

// afterCut compares the files of a session with its newest checkpoint from before a power cut. First it keeps the
// present files as a checkpoint. If no work after that checkpoint can have changed files, its files replace the present
// ones. Otherwise, and in a scope with a borrowed workspace, only files are put back that are missing, empty or older,
// or have another content with the same modification time; in a borrowed workspace none. A notice says what was put
// back and what may be older than the log (HZ-21). If an interrupted comparison kept a checkpoint, files of both are
// put back.
func (s *Snapshots) afterCut(ctx context.Context, sc *scope, row journal.Row, f Files, cut time.Time, direct bool) error {
	targets, err := s.beforeCut(ctx, row, cut)
	if err != nil {
		return err
	}
	if err := f.forgetScans(); err != nil {
		return err
	}
	err = s.take(ctx, sc, row, f, func(x *scanned) (moment, error) {
		reason := holdfast.CheckpointKept
		if x.same {
			reason = holdfast.CheckpointLate
		}
		return s.end(ctx, row, reason)(x)
	})
	if err != nil || len(targets) == 0 {
		return err
	}
	target := targets[0]
	present, _, err := s.base(ctx, sc, f)
	if err != nil || len(targets) == 1 && present.Workspace == target.Workspace && present.Home == target.Home {
		return err
	}
	ran, err := s.ran(ctx, row, target.Seq, direct)
	if err != nil {
		return err
	}
	changed, err := s.changes(ctx, f, target, present)
	if err != nil {
		return err
	}
	back := slices.Clone(changed)
	if ran || len(targets) > 1 || f.Borrowed {
		background.Run(func(slowly func()) {
			slowly()
			back, err = s.mend(ctx, f, targets, present)
		})
		sc.clean = false
	} else {
		c := journal.NewChange(row.ID)
		c.Files = &journal.FilesChange{}
		err = s.replaceBy(ctx, sc, row, f, target, c)
	}
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(changed, func(p string) bool { return slices.Contains(back, p) })
	c := journal.NewChange(row.ID)
	text := told.Cut(target.ID, back, left)
	if f.Borrowed {
		if text, err = cutReport(ctx, &s.Points, f, target, present, back); err != nil {
			return err
		}
	}
	c.Events = []journal.Draft{compared(text)}
	_, err = s.cfg.Journal.Commit(ctx, c)
	return err
}

const comparedFile = "compared" // next to the trees: the time of the last power cut after which the trees were compared

// comparedAt returns the time of the power cut after which the trees were last compared; the zero time if none is
// known.
func comparedAt(f Files) (at time.Time) {
	b, err := os.ReadFile(filepath.Join(f.Dir, comparedFile))
	if err == nil {
		at, _ = time.Parse(time.RFC3339Nano, string(b)) // a file that cannot be parsed gives the zero time, so the trees are compared again
	}
	return at
}

func setCompared(f Files, at time.Time) error {
	err := durable.Replace(filepath.Join(f.Dir, comparedFile), durable.Bytes([]byte(at.Format(time.RFC3339Nano))))
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "snapshot", "cannot record that files were compared after a power cut: %w", err).WithHint("free space on the disk of the data directory")
	}
	return nil
}

// compared returns the event that tells people and the model which files came back from a checkpoint.
func compared(text string) journal.Draft {
	return journal.Draft{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: holdfast.NoticeFilesCompared, Level: "warning", Text: journal.Plain(text)}}
}

// beforeCut returns the newest checkpoint of a session from before a power cut. If its reason is CheckpointKept, the
// one before it follows in the list, and so on. The list is empty without such a checkpoint, or if one from after the
// cut shows that people or agents have worked on the files since. Abandoned checkpoints do not count.
func (p *Points) beforeCut(ctx context.Context, row journal.Row, cut time.Time) (out []journal.Checkpoint, err error) {
	for before := (journal.Place{}); ; {
		list, err := p.cfg.Store.Checkpoints(ctx, row.ID, before, coded.PageSize)
		if err != nil || len(list) == 0 {
			return out, err
		}
		for _, cp := range list {
			kept := cp.Reason == holdfast.CheckpointKept
			switch {
			case cp.Abandoned:
			case cp.CreatedAt.After(cut):
				if !kept && cp.Reason != holdfast.CheckpointLate {
					return nil, nil
				}
			default:
				if out = append(out, cp); !kept {
					return out, nil
				}
			}
		}
		before = list[len(list)-1].Place()
	}
}

// ran reports whether a call that may have changed files ran after an event. If none did, it returns direct.
func (p *Points) ran(ctx context.Context, row journal.Row, after int64, direct bool) (bool, error) {
	for ev, err := range p.cfg.Journal.Read(ctx, row.ID, after) {
		if err != nil {
			return false, err
		}
		switch ev.Type {
		case holdfast.EventToolAllowed, holdfast.EventToolStarted, holdfast.EventFilesImported:
			return true, nil
		}
	}
	return direct, nil
}

// gone returns conflict for a workspace that does not exist; nil if neither calls nor people (direct) can have changed its
// files since last, the scope's newest checkpoint, and the next use restores them, as after the restore of a backup.
func gone(ctx context.Context, p *Points, l look, last journal.Checkpoint, direct bool) error {
	from, err := p.Newest(ctx, l.row)
	if err != nil {
		return err
	}
	lost, err := p.ran(ctx, l.row, last.Seq, direct || from == "" || l.alive || l.files.Borrowed)
	if err == nil && lost {
		err = told.Lost(l.row.ID)
	}
	return err
}

// changes returns the paths that differ between two checkpoints of one scope, as events show them.
func (p *Points) changes(ctx context.Context, f Files, from, to journal.Checkpoint) (paths []string, err error) {
	return paths, p.trees(ctx, from, to, func(i int, src tree.Source, a, b pack.ID) error {
		out, err := f.leaves(ctx, i, src, a, b, false)
		if err != nil {
			return err
		}
		for c, err := range tree.Diff(ctx, src, a, b) {
			if err != nil {
				return err
			}
			left, err := untouched(out, c)
			if err != nil {
				return err
			}
			if !left {
				paths = append(paths, shown(i, c.Path))
			}
		}
		return nil
	})
}

// trees calls do for each tree that both of two checkpoints have, with a source of their blobs.
func (p *Points) trees(ctx context.Context, from, to journal.Checkpoint, do func(i int, src tree.Source, a, b pack.ID) error) error {
	a, b, src, err := p.both(ctx, from, to)
	if err != nil {
		return err
	}
	for i := range names {
		if a.text(i) == "" || b.text(i) == "" {
			continue
		}
		if err := do(i, src, a[i], b[i]); err != nil {
			return err
		}
	}
	return nil
}

// mend puts back files of checkpoints, the newest checkpoint first: those that are missing, empty, or older now than in
// the checkpoint, or that have another content with the same modification time. It changes no borrowed workspace. It
// returns the paths as events show them. present is the checkpoint of the present files.
func (p *Points) mend(ctx context.Context, f Files, targets []journal.Checkpoint, present journal.Checkpoint) (back []string, err error) {
	for _, target := range targets {
		err = errors.Join(err, p.trees(ctx, target, present, func(i int, src tree.Source, root, now pack.ID) error {
			own, ok := f.own(i)
			if !ok || !exists(own.dir) {
				return nil
			}
			torn := map[string]bool{}
			for c, err := range tree.Diff(ctx, src, root, now) {
				if err != nil {
					return err
				}
				if c.Old.Type == tree.File && c.New.Type == tree.File && c.Old.Mtime == c.New.Mtime && !c.Old.SameContent(c.New) {
					torn[c.Path] = true
				}
			}
			paths, err := own.mend(ctx, src, root, f.Owners, func(path string, stored tree.Entry, now rooted.Entry) bool {
				return damaged(stored, now, torn[path])
			})
			for _, p := range paths {
				back = append(back, shown(i, p))
			}
			return err
		}))
	}
	return back, err
}

// damaged reports whether a power cut may have damaged an entry: it is missing now, a file with content is empty now,
// or a file is older now. torn says that the content differs: that counts if the modification times are the same.
func damaged(stored tree.Entry, now rooted.Entry, torn bool) bool {
	if now.Mode == 0 {
		return true
	}
	if stored.Type != tree.File || !now.Mode.IsRegular() {
		return false
	}
	at := now.Mtime.UnixNano()
	return now.Size == 0 && stored.Size > 0 || at < stored.Mtime || torn && at == stored.Mtime
}
