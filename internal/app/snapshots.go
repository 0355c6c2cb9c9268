package app

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/branch"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/seal"
	"github.com/holdfast-run/holdfast/internal/snapshot"
	"github.com/holdfast-run/holdfast/internal/snapshot/coded"
	"github.com/holdfast-run/holdfast/internal/snapshot/collect"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
	"github.com/holdfast-run/holdfast/internal/trash"
	"github.com/holdfast-run/holdfast/internal/workspaces"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// The key of the snapshot store, and the directory of its packs.
const (
	snapshotKey = "snapshots.key"
	snapshotDir = "snapshots"
)

// openPacks opens the packs of a data directory with their key. If random is nil, it makes no new key: a
// missing one is not_found.
func openPacks(data string, random io.Reader, cfg pack.Config) (*pack.Store, error) {
	key, err := seal.KeyFile(filepath.Join(data, snapshotKey), random)
	if err != nil {
		return nil, err
	}
	return pack.Open(filepath.Join(data, snapshotDir), pack.Keys{ID: [32]byte(key)}, cfg)
}

// openSnapshots opens the snapshot store of a data directory, for the sessions of the server's engine,
// which is made later.
func (s *server) openSnapshots() (*snapshot.Snapshots, error) {
	packs, err := openPacks(s.cfg.Data, rand.Reader, pack.Config{Spares: 8})
	if err != nil {
		return nil, err
	}
	s.collector = collect.New(collect.Config{DB: s.store.Checkpoints, Packs: packs, Rules: retention(s.cfg.Snapshots), Record: coded.Recorded})
	var agents []string // the agents' state directories, with their paths in boxes
	for _, d := range agentDirs(s.cfg) {
		agents = append(agents, path.Join(policy.Home, d.Path))
	}
	return snapshot.New(snapshot.Config{
		Packs: packs, Store: s.store.Checkpoints, Sessions: s.store.Sessions, Boxes: boxFiles{s}, Journal: s.journal,
		Branch: func(ctx context.Context, id holdfast.SessionID, seq int64) ([]journal.Span, error) {
			spans, _, err := branch.Spans(ctx, s.engine.Branching(), id, seq)
			return spans, err
		},
		LastCut: func(id holdfast.SessionID) (time.Time, bool) { return s.engine.Branching().LastCut(id) },
		Purge: func(ctx context.Context, id holdfast.SessionID) error {
			return s.collector.Purge(ctx, func(cp journal.Checkpoint) bool { return cp.Session == id })
		},
		Walls: func(ctx context.Context, row journal.Row) (sandbox.Walls, error) {
			w, err := s.engine.Branching().Walls(ctx, row)
			w.Masked = append(w.Masked, agents...)
			return w, err
		},
		Taken: func(id holdfast.SessionID, taken holdfast.SnapshotTaken) { s.engine.Branching().Taken(id, taken) },
		NewID: newID, Exclude: s.cfg.Snapshots.Exclude, Ignored: s.cfg.Snapshots.Ignored == config.On,
		Clock: time.Now, Log: s.opt.Log, At: s.opt.At,
	})
}

// retention converts the settings to the collector's rules. No limit is 0 in the settings; in the rules it is
// negative for the number and the age of checkpoints, and 0 for their size.
func retention(cfg config.Snapshots) collect.Rules {
	return collect.Rules{Count: unlimited(cfg.Keep), Age: unlimited(cfg.MaxAge), Bytes: int64(cfg.Quota)}
}

// finishRewinds finishes rewinds in which a former server had begun to replace files. A turn of another session of the
// workspace would see the files of two checkpoints (I-43), so that comes before any turn.
func finishRewinds(ctx context.Context, s *server) error {
	return snapshot.Finish(ctx, s.snapshots, func(ctx context.Context, _ journal.Query) (page journal.Page, err error) {
		marks, err := s.store.Checkpoints.Restoring(ctx)
		for _, mark := range marks {
			if row, err := s.store.Sessions.Row(ctx, mark.Session); err == nil {
				page.Rows = append(page.Rows, row)
			}
		}
		return page, err
	})
}

// collectEvery is how often the trash, the workspaces and the snapshot store are tidied up.
const collectEvery = 10 * time.Minute

// collects tidies up the trash, the workspaces and the snapshot store at intervals, until ctx ends. It begins with what a
// former server may not have finished: rewinds of files, and purges.
func (s *server) collects(ctx context.Context, bin *trash.Trash) {
	rewinds := snapshot.Finish(ctx, s.snapshots, s.store.Sessions.Rows)
	for begin := true; begin || clock.Pause(ctx, collectEvery) == nil; begin, rewinds = false, nil {
		if err := errors.Join(rewinds, bin.Empty(ctx), s.workspaces.Complete(ctx), s.workspaces.Empty(ctx, s.cfg.KeepTrash)); err != nil && ctx.Err() == nil {
			s.opt.Log.Warn("interrupted rewinds, deleted workspaces or the trash were not tidied up completely; the next try follows", "after", collectEvery, "error", err)
		}
		if begin {
			continue
		}
		plan, err := s.collector.Collect(ctx, false)
		for _, f := range plan.Faults {
			s.opt.Log.Error("a pack of the snapshot store cannot be used", "pack", f.Pack.String(), "reason", f.Why, "checkpoints", len(f.Checkpoints))
		}
		if err != nil && ctx.Err() == nil {
			s.opt.Log.Warn("the snapshot store was not tidied up completely; the next try follows", "after", collectEvery, "error", err)
		}
	}
}

// boxFiles implements snapshot.Boxes.
type boxFiles struct{ s *server }

// Files implements snapshot.Boxes.
func (b boxFiles) Files(ctx context.Context, row journal.Row) (snapshot.Files, error) {
	boxes := b.s.engine.Boxes()
	owner, err := boxes.Files(ctx, row)
	scope := boxes.Scope(row.ID)
	f := snapshot.Files{Scope: row.ID.Box(), Dir: scope.Home, Had: owner.HadFiles, Owners: ownersOf(b.s.places.Users(scope, owner, row.Trust))}
	f.Workspace, f.Borrowed, f.Lent = scope.Tree, scope.Tree != "", f.Owners.Agent
	if scope.RootTree != nil {
		f.Lent = tree.User{GID: int(scope.RootTree.GID)} // on the disk, root owns the files of a RootTree
	}
	if w, ok := b.s.workspaces.Of(row.ID); ok && w.Dir != "" {
		f.Same = func(top rooted.Entry) error {
			return workspaces.IntactAs(b.s.workspaces, w, top.Mode.IsDir(), top.Ino, top.UID)
		}
	}
	return f, err
}

// ownersOf returns the owners that the files of a session may have, from u, the users of its box.
func ownersOf(u place.Users) tree.Owners {
	if u.Boxd == 0 {
		self := tree.User{UID: os.Getuid(), GID: os.Getgid()}
		return tree.Owners{Agent: self, Boxd: self}
	}
	return tree.Owners{Agent: tree.User{UID: int(u.Tool), GID: int(u.ToolGID)}, Boxd: tree.User{UID: int(u.Boxd), GID: int(u.Boxd)}}
}

// Alive implements snapshot.Boxes.
func (b boxFiles) Alive(ctx context.Context, row journal.Row) bool {
	return b.s.engine.Boxes().Calm.Alive(ctx, row)
}

// Still implements snapshot.Boxes.
func (b boxFiles) Still(ctx context.Context, row journal.Row, most time.Duration, ready <-chan struct{}, fn func(context.Context) error) (bool, error) {
	return b.s.engine.Boxes().Calm.Still(ctx, row, most, ready, fn)
}

// Between implements snapshot.Boxes.
func (b boxFiles) Between(id holdfast.SessionID, work func(context.Context, journal.Row)) <-chan struct{} {
	return b.s.engine.Branching().Between(id, work)
}

// branches returns the part of the server that forks and rewinds sessions and restores files from checkpoints.
func (s *server) branches() *branch.Branches {
	return branch.New(branch.Config{
		Sessions: s.engine.Branching(), Snapshots: s.snapshots, Trees: s.snapshots, Unpack: s.engine.Direct().UnpackTree, Store: s.store.Sessions, Journal: s.journal,
		Scope: holdfast.SessionID.Box,
		Hold:  s.vault.Hold, NewID: newID, Clock: time.Now,
	})
}

func newID() (string, error) { return holdfast.NewUUID(time.Now(), rand.Reader) }
