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
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Scope is what a box is for: one session with files of its own, or several that share them.
type Scope struct {
	Box holdfast.BoxID
	// Dir is the directory with the box's trees on the host.
	Dir string
	// Owner is the session whose row tells of the files: whether there were any, and whose
	// host ids they have.
	Owner holdfast.SessionID
}

// Scopes says which sessions share a box. Its answers may not change while a session lives.
type Scopes interface {
	// Of is the scope of a session.
	Of(session holdfast.SessionID) Scope
	// Members are the sessions of a box, ended ones included; none for a box of nobody.
	Members(ctx context.Context, box holdfast.BoxID) ([]holdfast.SessionID, error)
}

// private gives each session a scope of its own, in a directory of its name.
type private struct{ dir string }

// Of implements Scopes.
func (p private) Of(id holdfast.SessionID) Scope {
	return Scope{Box: holdfast.SessionBox(id), Dir: filepath.Join(p.dir, string(id)), Owner: id}
}

// Members implements Scopes.
func (private) Members(_ context.Context, box holdfast.BoxID) ([]holdfast.SessionID, error) {
	if id, ok := strings.CutPrefix(string(box), string(holdfast.SessionBox(""))); ok {
		return []holdfast.SessionID{holdfast.SessionID(id)}, nil
	}
	return nil, nil
}

// Workspace is the directory of the scope's workspace on the host.
func (s Scope) Workspace() string { return filepath.Join(s.Dir, "workspace") }

// Scope is the scope of a session.
func (b *Boxes) Scope(id holdfast.SessionID) Scope { return b.cfg.Scopes.Of(id) }

// Workspace reads the workspace of a session.
func (b *Boxes) Workspace(id holdfast.SessionID) Tree {
	return b.cfg.Files.Tree(b.Scope(id).Workspace())
}

// Files is the row that tells of the files of a session's scope.
func (b *Boxes) Files(ctx context.Context, row journal.Row) (journal.Row, error) {
	owner := b.Scope(row.ID).Owner
	if owner == row.ID {
		return row, nil
	}
	return b.sessions.Row(ctx, owner)
}

// live are the sessions that may use a box. A failure to read one counts as a session that
// may.
func (b *Boxes) live(ctx context.Context, box holdfast.BoxID) ([]holdfast.SessionID, error) {
	ids, err := b.cfg.Scopes.Members(ctx, box)
	return slices.DeleteFunc(slices.Clone(ids), func(id holdfast.SessionID) bool {
		row, err := b.sessions.Row(ctx, id)
		return holdfast.IsKind(err, holdfast.KindNotFound) || err == nil && row.Status == holdfast.StatusEnded
	}), err
}

// known reports whether a box still has a session that may use it.
func (b *Boxes) known(ctx context.Context, box holdfast.BoxID) bool {
	live, err := b.live(ctx, box)
	return err != nil || len(live) > 0
}

// Hear are the sessions that are told of what happens to a box: those that may use it, or else
// those that could.
func (b *Boxes) Hear(ctx context.Context, box holdfast.BoxID) ([]holdfast.SessionID, error) {
	ids, err := b.live(ctx, box)
	if len(ids) == 0 && err == nil {
		ids, err = b.cfg.Scopes.Members(ctx, box)
	}
	return ids, err
}

// Resting are the calls of a box that run agents of sessions of which no turn is open: they do
// not keep it from being frozen or stopped.
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

// Disk measures what the trees of a box take.
func (b *Boxes) Disk(ctx context.Context, box holdfast.BoxID) (sandbox.DiskUsage, error) {
	ids, err := b.cfg.Scopes.Members(ctx, box)
	if err != nil {
		return sandbox.DiskUsage{}, err
	}
	if len(ids) == 0 {
		return sandbox.DiskUsage{}, holdfast.Errorf(holdfast.KindNotFound, "box.disk", "no session has box %s", holdfast.Quote(string(box)))
	}
	u, err := b.cfg.Files.Usage(ctx, b.Scope(ids[0]).Dir)
	return sandbox.DiskUsage{Bytes: u.Bytes, Files: int64(u.Entries), Hidden: u.Partial}, err
}

// Running is the session's side of its box if that runs, else nil.
func (b *Boxes) Running(row journal.Row) *sandbox.Box {
	if pool, _ := b.pool(row); pool != nil {
		if box := pool.Live(b.Scope(row.ID).Box); box != nil {
			return box.Of(row.ID)
		}
	}
	return nil
}

// Full is holdfast.ErrFull if a turn of the session would have to wait for a place.
func (b *Boxes) Full(row journal.Row) error {
	pool, _ := b.pool(row)
	if pool == nil {
		return nil // the turn says so
	}
	return pool.Full(b.Scope(row.ID).Box)
}

// Freeze freezes the session's box if nobody uses it.
func (b *Boxes) Freeze(ctx context.Context, row journal.Row) error {
	pool, err := b.pool(row)
	if err != nil {
		return err
	}
	return pool.Freeze(ctx, b.Scope(row.ID).Box)
}

// Stop ends the session's box, used or not.
func (b *Boxes) Stop(ctx context.Context, row journal.Row, reason string) error {
	pool, _ := b.pool(row)
	if pool == nil {
		return nil
	}
	return pool.Stop(ctx, b.Scope(row.ID).Box, reason, time.Second)
}

// shared reports whether a session that lives, other than this one, may use its box.
func (b *Boxes) shared(ctx context.Context, id holdfast.SessionID) (bool, error) {
	live, err := b.live(ctx, b.Scope(id).Box)
	return slices.ContainsFunc(live, func(o holdfast.SessionID) bool { return o != id }), err
}

// removeTimeout bounds the end of a box that nobody waits for.
const removeTimeout = 30 * time.Second

// Leave ends the box of a session that has ended, also one of a trust it had before. If other
// sessions use the box, only what this session runs in it ends. The caller going away does not
// keep it.
func (b *Boxes) Leave(ctx context.Context, row journal.Row) error {
	var errs []error
	// The pool that has it comes first, so that the end is told as one.
	own, _ := b.pool(row)
	if own != nil {
		errs = append(errs, b.leave(ctx, row.ID, own))
	}
	for _, d := range b.cfg.Drivers {
		if d.Pool != own {
			errs = append(errs, b.leave(ctx, row.ID, d.Pool))
		}
	}
	return errors.Join(errs...)
}

func (b *Boxes) leave(ctx context.Context, id holdfast.SessionID, pool *pool.Pool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	box := b.Scope(id).Box
	shared, err := b.shared(ctx, id)
	if err != nil {
		return err
	}
	if !shared {
		return pool.Remove(ctx, box)
	}
	live := pool.Live(box)
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

// RemoveFiles removes the files of a session that is gone, unless others share them.
func (b *Boxes) RemoveFiles(ctx context.Context, id holdfast.SessionID) error {
	sc := b.Scope(id)
	ids, err := b.cfg.Scopes.Members(ctx, sc.Box)
	if err != nil || slices.ContainsFunc(ids, func(o holdfast.SessionID) bool { return o != id }) {
		return err
	}
	return b.cfg.Files.Remove(ctx, sc.Dir)
}
