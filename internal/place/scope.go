package place

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Scope is the unit that has one box: a session with files of its own, or several sessions that share files.
type Scope struct {
	Box holdfast.BoxID
	// Dir is the directory on the host with the box's directories, except Home and Tree if they lie elsewhere.
	Dir string
	// Home is the directory on the host with what belongs to this session alone: its home, and what scans remember. It is
	// equal to Dir, unless sessions share the box.
	Home string
	// Shared is true if each session has a place of its own in the box (sandbox.Spec.Shared).
	Shared bool
	// Owner is the session whose row describes the files of the scope: whether they exist, and
	// which host ids own them.
	Owner holdfast.SessionID
	// Tree is the host's path of the workspace; empty: Dir/workspace. Other scopes may have the same.
	Tree string
	// Borrowed is true if Tree is a directory of the user's own: the server never makes or removes it, and copies no
	// files of an agent into it.
	Borrowed bool
	// Files is a name for the files of the scope: scopes with the same workspace have the same name.
	Files holdfast.BoxID
	// Around is a directory of the host that the box can read; empty: none.
	Around string
	// BoxdUID, ToolUID and ToolGID are the host ids of boxd and of the tools; 0: those that follow from the row of
	// Owner.
	BoxdUID, ToolUID, ToolGID uint32
	// RootTree describes a Tree that belongs to root of the host; nil for any other.
	RootTree *sandbox.RootTree
	// Umask is sandbox.Spec.Umask.
	Umask *uint32
}

// Scopes determines which sessions share a box. An answer about a session must not change while it has a box.
type Scopes interface {
	// Of returns the scope of a session.
	Of(session holdfast.SessionID) Scope
	// Members returns the sessions of a box, with those that have ended; none if no session ever had the box.
	Members(ctx context.Context, box holdfast.BoxID) ([]holdfast.SessionID, error)
	// Boxes returns the ids of all boxes whose processes may change the files of a session's workspace, sorted. The
	// session's own box is one of them.
	Boxes(session holdfast.SessionID) []holdfast.BoxID
	// Intact fails if the session's workspace is a directory of the user's own that cannot be used any more: with
	// conflict if it was replaced or has another owner, with denied if root owns it and the configuration forbids that.
	// It fails with conflict if the box should have the server's tree but cannot.
	Intact(session holdfast.SessionID) error
	// Trees returns the host's paths of the workspaces of all scopes with a Tree, including those in directories of
	// users. A path need not exist.
	Trees(ctx context.Context) ([]string, error)
}

// Private gives each session a scope of its own, in a directory named after the session.
type Private struct {
	// Dir contains the directories of the sessions. It is clean, as filepath.Clean makes it.
	Dir string
}

// Of implements Scopes.
func (p Private) Of(id holdfast.SessionID) Scope {
	dir := p.Dir + "/" + string(id)
	box := id.Box()
	return Scope{Box: box, Files: box, Dir: dir, Home: dir, Owner: id}
}

// Boxes implements Scopes.
func (Private) Boxes(id holdfast.SessionID) []holdfast.BoxID {
	return []holdfast.BoxID{id.Box()}
}

// Intact implements Scopes.
func (Private) Intact(holdfast.SessionID) error { return nil }

// Trees implements Scopes.
func (Private) Trees(context.Context) ([]string, error) { return nil, nil }

// Members implements Scopes.
func (Private) Members(_ context.Context, box holdfast.BoxID) ([]holdfast.SessionID, error) {
	if id, ok := strings.CutPrefix(string(box), string(holdfast.SessionID("").Box())); ok {
		return []holdfast.SessionID{holdfast.SessionID(id)}, nil
	}
	return nil, nil
}

// Workspace returns the host's path of the scope's workspace.
func (s Scope) Workspace() string {
	if s.Tree != "" {
		return s.Tree
	}
	return s.Dir + "/workspace"
}

// Place returns the paths at which the tools of a session with the given trust see its workspace and home: fixed paths
// in an isolated box, host paths if the session is trusted.
func (s Scope) Place(trust holdfast.Trust) (workspace, home string) {
	if trust != holdfast.Trusted {
		return policy.Cwd, policy.Home
	}
	return s.Workspace(), filepath.Join(s.Dir, "home")
}

// Scope returns the scope of a session.
func (b *Boxes) Scope(id holdfast.SessionID) Scope { return b.cfg.Scopes.Of(id) }

// Workspace returns a reader for the workspace of a session.
func (b *Boxes) Workspace(id holdfast.SessionID) Tree {
	return b.cfg.Files.Tree(b.Scope(id).Workspace())
}

// Files returns the row of the session that owns the files of the given session's scope.
func (b *Boxes) Files(ctx context.Context, row journal.Row) (journal.Row, error) {
	owner := b.Scope(row.ID).Owner
	if owner == row.ID {
		return row, nil
	}
	return b.sessions.Row(ctx, owner)
}

// First returns the row of the first session of a box whose row can be read. For the limits of a box that is enough,
// because sessions that share a box have the same. ok is false if no row can be read.
func First(ctx context.Context, b *Boxes, box holdfast.BoxID) (row journal.Row, ok bool) {
	ids, _ := b.cfg.Scopes.Members(ctx, box) // after an error ids is empty
	for _, id := range ids {
		if row, err := b.sessions.Row(ctx, id); err == nil {
			return row, true
		}
	}
	return row, false
}

// live returns the sessions that may use a box: those that neither have ended nor were deleted. A session whose row
// cannot be read for another reason is included.
func (b *Boxes) live(ctx context.Context, box holdfast.BoxID) ([]holdfast.SessionID, error) {
	ids, err := b.cfg.Scopes.Members(ctx, box)
	return slices.DeleteFunc(slices.Clone(ids), func(id holdfast.SessionID) bool {
		row, err := b.sessions.Row(ctx, id)
		return holdfast.IsKind(err, holdfast.KindNotFound) || err == nil && row.Status == holdfast.StatusEnded
	}), err
}

// known returns a function that reports whether any session may still use a box. If the sessions of the box cannot be
// found out, the function returns true.
func known(ctx context.Context, b *Boxes) func(box holdfast.BoxID) bool {
	return func(box holdfast.BoxID) bool {
		live, err := b.live(ctx, box)
		return err != nil || len(live) > 0
	}
}

// Hear returns the sessions that get the events of a box: those that may use the box, or if there
// are none, all that ever could.
func (b *Boxes) Hear(ctx context.Context, box holdfast.BoxID) ([]holdfast.SessionID, error) {
	ids, err := b.live(ctx, box)
	if len(ids) == 0 && err == nil {
		ids, err = b.cfg.Scopes.Members(ctx, box)
	}
	return ids, err
}

// Resting returns the calls of a box that run agents of sessions without an open turn (see Sessions.Open): they do
// not prevent the box from being frozen or stopped.
func (b *Boxes) Resting(ctx context.Context, box holdfast.BoxID) []holdfast.CallID {
	ids, err := b.cfg.Scopes.Members(ctx, box)
	if err != nil {
		return nil
	}
	var calls []holdfast.CallID
	for _, id := range ids {
		calls = append(calls, idle(ctx, b.sessions, id, box)...)
	}
	return calls
}

// Disk measures how much disk space the trees of a box use. Homes of sessions that have ended do not count: those who
// use the box cannot remove them.
func (b *Boxes) Disk(ctx context.Context, box holdfast.BoxID) (sandbox.DiskUsage, error) {
	ids, err := b.cfg.Scopes.Members(ctx, box)
	if err != nil {
		return sandbox.DiskUsage{}, err
	}
	if len(ids) == 0 {
		return sandbox.DiskUsage{}, holdfast.Errorf(holdfast.KindNotFound, "box.disk", "no session uses box %s", holdfast.Quote(string(box)))
	}
	live, err := b.live(ctx, box)
	if err != nil {
		return sandbox.DiskUsage{}, err
	}
	var sum sandbox.DiskUsage
	for _, dir := range dirsOf(b.cfg.Scopes, ids, live) {
		u, err := b.cfg.Files.Usage(ctx, dir)
		if err != nil {
			return sum, err
		}
		sum.Bytes, sum.Files, sum.Hidden = sum.Bytes+u.Bytes, sum.Files+int64(u.Entries), sum.Hidden || u.Partial
	}
	return sum, nil
}

// dirsOf returns the directories with the files of a box: the box directories and trees of all its sessions, ids, and
// the homes of the sessions in live. It leaves out directories of the user's own.
func dirsOf(scopes Scopes, ids, live []holdfast.SessionID) (dirs []string) {
	for _, id := range ids {
		sc := scopes.Of(id)
		dirs = append(dirs, sc.Dir)
		if slices.Contains(live, id) {
			dirs = append(dirs, sc.Home)
		}
		if sc.Tree != "" && !sc.Borrowed {
			dirs = append(dirs, sc.Tree)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// Running returns the session's view of its box if the box is connected, else nil.
func (b *Boxes) Running(row journal.Row) *sandbox.Box {
	if pool, _ := b.pool(row); pool != nil {
		if box := pool.Live(b.Scope(row.ID).Box); box != nil {
			return box.Of(row.ID)
		}
	}
	return nil
}

// Entered returns the session's view of its box like Running, but nil if the box is shared and the session has not
// joined it yet.
func (b *Boxes) Entered(row journal.Row) *sandbox.Box {
	box := b.Running(row)
	if box == nil || b.Scope(row.ID).Shared && !b.places.has(row.ID, box) {
		return nil
	}
	return box
}

// Full returns holdfast.ErrFull if a turn of the session would have to wait for a place.
func (b *Boxes) Full(row journal.Row) error {
	pool, _ := b.pool(row)
	if pool == nil {
		return nil // no driver serves the session: its turn returns that error later
	}
	return pool.Full(b.Scope(row.ID).Box)
}

// Freeze freezes the session's box if the box is unused.
func (b *Boxes) Freeze(ctx context.Context, row journal.Row) error {
	pool, err := b.pool(row)
	if err != nil {
		return err
	}
	return pool.Freeze(ctx, b.Scope(row.ID).Box)
}

// Stop ends the session's box, even if it is in use. If other sessions use the box, Stop ends only the session's own
// calls and its place in the box.
func (b *Boxes) Stop(ctx context.Context, row journal.Row, reason string) error {
	return b.StopIn(ctx, b.Scope(row.ID), row, reason)
}

// StopIn does what Stop does, for the box that the session had in the scope sc, when it had the trust of row.
func (b *Boxes) StopIn(ctx context.Context, sc Scope, row journal.Row, reason string) error {
	pool, _ := b.pool(row)
	if pool == nil {
		return nil
	}
	if others, err := shared(ctx, b, sc, row.ID); err != nil || others {
		return errors.Join(err, b.leave(ctx, sc, row.ID, pool))
	}
	return pool.Stop(ctx, sc.Box, reason, stopGrace)
}

// shared reports whether another live session than this one may use the box of a scope.
func shared(ctx context.Context, b *Boxes, sc Scope, id holdfast.SessionID) (bool, error) {
	live, err := b.live(ctx, sc.Box)
	return slices.ContainsFunc(live, func(o holdfast.SessionID) bool { return o != id }), err
}

// stopGrace is how long the processes of a session have between SIGTERM and SIGKILL when its box ends, or when it
// leaves a shared one.
const stopGrace = pool.StopGrace

// removeTimeout limits how long leave may take.
const removeTimeout = 30 * time.Second

// Leave ends the box of a session that has ended, also a box from a former trust level. If other
// sessions use the box, only the calls of this session end. Leave continues if the caller goes
// away.
func (b *Boxes) Leave(ctx context.Context, row journal.Row) error {
	var errs []error
	sc := b.Scope(row.ID)
	// Start with the pool that has the box, so that the end is reported once.
	own, _ := b.pool(row)
	if own != nil {
		errs = append(errs, b.leave(ctx, sc, row.ID, own))
	}
	for _, d := range b.cfg.Drivers {
		if d.Pool != own {
			errs = append(errs, b.leave(ctx, sc, row.ID, d.Pool))
		}
		if private := row.ID.Box(); sc.Box != private {
			// A trusted session of a workspace has a box of its own.
			errs = append(errs, d.Pool.Remove(context.WithoutCancel(ctx), private))
		}
	}
	return errors.Join(errs...)
}

// leave ends the box of a session with the scope sc in a pool, or, if other sessions use the box, only what the session
// has in it.
func (b *Boxes) leave(ctx context.Context, sc Scope, id holdfast.SessionID, pool *pool.Pool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	others, err := shared(ctx, b, sc, id)
	if err != nil {
		return err
	}
	b.Calm.forget(id)
	if !others {
		b.places.forget(id)
		return pool.Remove(ctx, sc.Box)
	}
	if sc.Shared {
		return b.places.leave(ctx, id, func() error { return pool.Leave(ctx, sc.Box, id, stopGrace) })
	}
	live := pool.Live(sc.Box)
	if live == nil {
		return nil
	}
	own := live.Of(id)
	calls, err := own.Calls(ctx)
	for _, c := range calls {
		err = errors.Join(err, own.Kill(ctx, wire.KillRequest{Call: c.Call}))
		own.Release(c.Call)
	}
	return err
}

// RemoveFiles removes the files of a deleted session that no other session shares.
func (b *Boxes) RemoveFiles(ctx context.Context, id holdfast.SessionID) error {
	sc := b.Scope(id)
	if sc.Home != sc.Dir {
		return b.cfg.Files.Remove(ctx, sc.Home)
	}
	ids, err := b.cfg.Scopes.Members(ctx, sc.Box)
	if err != nil || slices.ContainsFunc(ids, func(o holdfast.SessionID) bool { return o != id }) {
		return err
	}
	return b.cfg.Files.Remove(ctx, sc.Dir)
}
