package app

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/choices"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/network"
	"github.com/holdfast-run/holdfast/internal/permit"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot"
	"github.com/holdfast-run/holdfast/internal/workspaces"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// openWorkspaces opens the workspaces of the server, which use its engine only after its start.
func (s *server) openWorkspaces(ctx context.Context, checkModel func(string) error, base *policy.Engine, driver sandbox.Driver) (err error) {
	s.workspaces, err = workspaces.Open(ctx, workspaces.Config{
		Store: s.store.Workspaces, Data: s.cfg.Data, TreeRoot: s.cfg.Mounted.Tree, Clock: time.Now, Log: s.opt.Log,
		Make: func(tree string, number int64) error {
			uid, gid := os.Getuid(), os.Getgid()
			if base := s.uidBase(); base != 0 {
				uid = int(place.WorkspaceUID(base, number))
				gid = uid
			}
			_, err := rooted.Seed(tree, nil, uid, gid)
			return err
		},
		RootTrees: s.cfg.Root.Trees == config.True, TryRootTree: tryRootTree(driver), CheckModel: checkModel, CheckNetwork: network.Check,
		CheckEnv: func(env map[string]string) error { return choices.CheckEnv("workspace", env) }, Sealer: s.vault,
		CheckLimits: s.cfg.Limits.Check, LimitKeys: config.LimitKeys(),
		CheckRule: func(rule string) error {
			_, err := base.ParseRule(rule)
			return err
		},
		CheckRuntime: func(name string, trust holdfast.Trust) error { return s.engine.Runtimes().Require(name, trust) },
		Engine:       func() workspaces.Engine { return s.engine }, Boxes: func() workspaces.Boxes { return s.engine.Boxes() },
		Save: func(ctx context.Context, rows workspaces.List) ([]holdfast.SessionID, error) {
			return snapshot.Settle(ctx, s.snapshots, rows)
		},
		Leave: func(ctx context.Context, row journal.Row, c journal.Change) (err error) {
			if c.Patch().Bounds, err = boundsOf(s)(ctx, row); err == nil {
				_, err = s.journal.Commit(ctx, c)
			}
			return err
		},
		Running: func(ctx context.Context, id holdfast.SessionID) (bool, error) {
			open, err := s.store.Sessions.OpenTurns(ctx, id)
			return len(open) > 0, err
		},
	})
	return err
}

// tryRootTree returns a function that tries out whether the driver's boxes can have a directory of root.
func tryRootTree(driver sandbox.Driver) func(ctx context.Context, dir string, inode uint64, gid uint32) error {
	return func(ctx context.Context, dir string, inode uint64, gid uint32) error {
		d, ok := driver.(sandbox.RootTrees)
		if !ok {
			return holdfast.Errorf(holdfast.KindDenied, "workspace", "the directory %s belongs to root, and no driver of this server can give such a directory to a box", holdfast.Quote(dir)).
				WithHint("give the directory to another user: chown -R USER %s", dir)
		}
		return d.TryRootTree(ctx, dir, sandbox.RootTree{Inode: inode, GID: gid})
	}
}

// shares returns a function that reports whether a session shares the box of its workspace.
func shares(s *server, driver sandbox.Driver) func(id holdfast.SessionID) bool {
	_, can := driver.(sandbox.Sharer)
	can = can && s.cfg.Limits.Shared == config.On
	apart := sync.OnceValue(func() bool {
		return !slices.ContainsFunc(s.about.support().Missing, func(lack string) bool { return strings.HasPrefix(lack, "landlock: ") })
	})
	return func(id holdfast.SessionID) bool {
		if !can || !apart() {
			return false
		}
		return s.workspaces.Member(id).Trust == holdfast.Untrusted
	}
}

// limitsOf returns a function that returns the limits of a session's box: the server's, lowered by those of its
// workspace, and for a fork by those of the workspace that its files come from.
func limitsOf(s *server) func(row journal.Row) (sandbox.Limits, error) {
	return func(row journal.Row) (sandbox.Limits, error) {
		limits, err := s.cfg.Limits, error(nil)
		if row.Given.Bounds != nil {
			limits, err = limits.Lowered(row.Given.Bounds.Limits)
		}
		if w, ok := s.workspaces.Of(row.ID); ok && err == nil {
			limits, err = limits.Lowered(w.Limits)
		}
		if err != nil {
			return sandbox.Limits{}, err
		}
		return limits.Box(), nil
	}
}

// boundsOf returns a function that returns the restrictions that a fork inherits from a session and from its workspace.
func boundsOf(s *server) func(ctx context.Context, from journal.Row) (*journal.Bounds, error) {
	rules := workspaces.Ruled{Stored: s.store.Approvals, Of: s.workspaces}
	return permit.Bounds(rules, func(id holdfast.SessionID) (holdfast.Workspace, bool) {
		w, ok := s.workspaces.Of(id)
		return w.Workspace, ok
	})
}

// diskLimitOf returns a function that returns how many bytes a box may take; 0 if that is not known.
func diskLimitOf(s *server) func(ctx context.Context, box holdfast.BoxID) int64 {
	return func(ctx context.Context, box holdfast.BoxID) int64 {
		row, ok := place.First(ctx, s.engine.Boxes(), box)
		if !ok {
			return 0
		}
		limits, _ := s.places.LimitsOf(row) // on an error the limits are zero, so the result is 0
		return limits.DiskBytes
	}
}
