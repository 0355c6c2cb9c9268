package place

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/resume"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// For returns the driver that runs the boxes of a session: the first that serves the session's trust level. If no
// driver does, or if the trust is not a level, it returns an error; the session never gets another place (I-15).
func For(s holdfast.Session, drivers []Driver) (Driver, error) {
	if s.Trust != holdfast.Trusted && s.Trust != holdfast.Untrusted {
		return Driver{}, holdfast.Errorf(holdfast.KindInternal, "box", "the stored trust %s of session %s is not a trust level, so nothing of the session runs", holdfast.Quote(string(s.Trust)), s.ID).
			WithHint("holdfast session update %s --trust %s", s.ID, holdfast.Untrusted)
	}
	i := slices.IndexFunc(drivers, func(d Driver) bool { return slices.Contains(d.Serves, s.Trust) })
	if i < 0 {
		return Driver{}, holdfast.Errorf(holdfast.KindUnavailable, "box", "no driver of this server runs %s sessions", s.Trust).
			WithHint("holdfast serve --driver local, or run the session on the host itself: holdfast session create --trust trusted")
	}
	return drivers[i], nil
}

// pool returns the pool that has the session's box.
func (b *Boxes) pool(row journal.Row) (*pool.Pool, error) {
	d, err := For(row.Session, b.cfg.Drivers)
	return d.Pool, err
}

// Claim is a request for a session's box.
type Claim struct {
	Session holdfast.SessionID
	// Turn is true for the claim of a turn. It counts against the limit of turns and waits for a place; Queued receives
	// its position in the queue.
	Turn   bool
	Queued func(position int)
	// Walls returns the walls (mounts for path rules) that the box of an untrusted session must have.
	Walls func(ctx context.Context, row journal.Row) (wire.Walls, error)
	// Live claims only a box that is running; if the box is not running, the claim is denied.
	Live bool
}

// Acquire claims a session's box. The first claim of a scope also makes its first files. The
// hold's box is the session's view of the box, in which everything that the session's processes
// need is set up, and in which calls that the session's log no longer needs have been released.
func (b *Boxes) Acquire(ctx context.Context, c Claim) (*pool.Hold, error) {
	own := b.claims.join(c.Session)
	defer b.claims.leave(c.Session, own)
	if err := own.door.Acquire(ctx, 1); err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "box", "gave up waiting for the box of session %s: %w", c.Session, context.Cause(ctx))
	}
	defer own.door.Release(1)
	if c.Queued == nil {
		c.Queued = func(int) {}
	}
	for {
		sc := b.Scope(c.Session)
		moved := own.moved.Load()
		hold, pool, err := b.acquireOnce(ctx, c)
		if own.moved.Load() == moved {
			return hold, err
		}
		// The session ended, was deleted, or changed its trust during this claim, which must then end the
		// box, because nothing else will end it or remove its files.
		if hold != nil {
			hold.Release()
			if sc.Box != hold.Box.ID() {
				sc = b.Scope(c.Session) // the session left its workspace before it got the box
			}
			if err := b.leave(ctx, sc, c.Session, pool); err != nil {
				return nil, err
			}
		}
		if _, rerr := b.sessions.Row(ctx, c.Session); rerr != nil {
			if holdfast.IsKind(rerr, holdfast.KindNotFound) {
				rerr = errors.Join(rerr, b.RemoveFiles(ctx, c.Session))
			}
			return nil, rerr
		}
	}
}

// Without stops a session's box like Boxes.Stop, and then calls work. It first waits for the session's claims in progress,
// because each of them may start the box; claims that come later wait until work has returned. So the session has no
// box during work, and its files are not used in one (I-43).
func Without(ctx context.Context, b *Boxes, row journal.Row, reason string, work func() error) error {
	own := b.claims.join(row.ID)
	defer b.claims.leave(row.ID, own)
	if err := own.door.Acquire(ctx, allClaims); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "box", "gave up waiting for the requests that start the box of session %s: %w", row.ID, context.Cause(ctx))
	}
	defer own.door.Release(allClaims)
	if err := b.Stop(ctx, row, reason); err != nil {
		return err
	}
	return work()
}

func (b *Boxes) acquireOnce(ctx context.Context, c Claim) (*pool.Hold, *pool.Pool, error) {
	read := b.sessions.Live
	if c.Live {
		read = b.sessions.Row // a claim with Live is allowed, too, for a session that has just ended
	}
	row, err := read(ctx, c.Session)
	if err != nil {
		return nil, nil, err
	}
	if c.Live && b.Running(row) == nil {
		return nil, nil, holdfast.Errorf(holdfast.KindDenied, "box", "the sandbox of session %s is not running", c.Session)
	}
	pool, err := b.pool(row)
	if err != nil {
		return nil, nil, err
	}
	files, err := b.Files(ctx, row)
	if err != nil {
		return nil, nil, err
	}
	spec, err := b.spec(ctx, row, files)
	if err != nil {
		return nil, nil, err
	}
	if row.Trust == holdfast.Untrusted {
		if spec.Walls, err = c.Walls(ctx, row); err != nil {
			return nil, nil, err
		}
		spec.Walls = around(b.Scope(row.ID), spec.Walls)
	}
	if b.cfg.Ready != nil && !c.Live {
		if err := b.cfg.Ready(ctx, row); err != nil {
			return nil, nil, err
		}
	}
	if !c.Live {
		if err := b.cfg.Scopes.Intact(row.ID); err != nil {
			return nil, nil, err
		}
	}
	switch {
	case c.Live:
	case !files.FilesSeeded || !files.HadFiles:
		if spec, err = b.seed(ctx, row, pool, spec); err != nil {
			return nil, nil, err
		}
	case !b.Workspace(row.ID).Exists(ctx):
		// The workspace is missing: never make a new, empty one instead; the caller must accept the loss first.
		return nil, nil, resume.FilesGone(row.ID)
	}
	hold, err := b.enter(ctx, c, row, pool, spec)
	return hold, pool, err
}

func (b *Boxes) enter(ctx context.Context, c Claim, row journal.Row, pool *pool.Pool, spec sandbox.Spec) (*pool.Hold, error) {
	enter, err := b.sessions.Prepare(row)
	if err != nil {
		return nil, err
	}
	hold, died, err := join(ctx, b, c, pool, spec)
	if died && !c.Live {
		hold, _, err = join(ctx, b, c, pool, spec)
	}
	if err != nil {
		return nil, err
	}
	hold.Box = hold.Box.Of(row.ID)
	err = hold.Box.Adopt(func(held []wire.CallState) error {
		done, err := settled(ctx, b.sessions, row.ID, held)
		hold.Box.Release(done...)
		return err
	})
	if err == nil {
		err = enter(ctx, hold.Box)
	}
	if err != nil {
		hold.Release()
		return nil, err
	}
	return hold, nil
}

// join claims the box, and in a shared box gives the session its place. died reports that it failed because the box
// died before the session had its place.
func join(ctx context.Context, b *Boxes, c Claim, pool *pool.Pool, spec sandbox.Spec) (hold *pool.Hold, died bool, err error) {
	if hold, err = pool.Acquire(ctx, spec, c.Turn, c.Queued); err != nil {
		return nil, false, err
	}
	b.Calm.claimed(spec.Box, hold.Box)
	if !spec.Shared {
		return hold, false, nil
	}
	err = b.places.join(ctx, c.Session, hold.Box, func() error {
		own := b.Scope(c.Session).Home
		m := sandbox.Member{Session: c.Session, Home: filepath.Join(own, "home"), Agent: spec.Agent}
		return errors.Join(os.MkdirAll(own, 0o700), pool.Join(ctx, spec.Box, m))
	})
	if err != nil {
		// A box that answers a request for its calls has not died.
		_, silent := hold.Box.Calls(ctx)
		hold.Release()
		return nil, silent != nil, err
	}
	return hold, false, nil
}

// spec returns the spec of a session's box; files is the row of the session that owns the files of its scope.
func (b *Boxes) spec(ctx context.Context, row, files journal.Row) (sandbox.Spec, error) {
	sc := b.Scope(row.ID)
	s := sandbox.Spec{
		Box: sc.Box, Dir: sc.Dir, Workspace: sc.Tree, Tree: sc.Around, HostUser: sc.Borrowed, RootTree: sc.RootTree, Shared: sc.Shared, Umask: sc.Umask,
		LimitsMode: b.cfg.LimitsMode, Landlock: b.cfg.Landlock, OrphanAfter: b.cfg.OrphanAfter,
		SpoolBytes: b.cfg.SpoolBytes,
	}
	var err error
	if s.Limits, err = b.cfg.LimitsOf(row); err != nil {
		return s, err
	}
	if s.Agent, err = b.sessions.Plugin(ctx, row); err != nil {
		return s, err
	}
	if files.Number >= MaxNumber {
		return s, holdfast.Errorf(holdfast.KindUnavailable, "box", "session %s is number %d in this data directory, and no host user ids are left for its box", files.ID, files.Number)
	}
	u := b.cfg.Users(sc, files, row.Trust)
	s.BoxdUID, s.ToolUID, s.ToolGID = u.Boxd, u.Tool, u.ToolGID
	return s, nil
}

// around adds a masked path to walls if the workspace lies in the server's tree that the box can read, or the tree in
// the workspace. It masks the workspace, or in the second case the tree, at its path below TreeDir, because path
// rules are not enforced there.
func around(sc Scope, walls wire.Walls) wire.Walls {
	below := func(path, dir string) (string, bool) {
		rel, err := filepath.Rel(dir, path)
		return rel, path != "" && dir != "" && err == nil && filepath.IsLocal(rel)
	}
	rel, both := below(sc.Tree, sc.Around)
	if !both {
		rel = ""
		_, both = below(sc.Around, sc.Tree)
	}
	if both {
		walls.Masked = append(slices.Clone(walls.Masked), filepath.Join(sandbox.TreeDir, rel))
	}
	return walls
}

// Users are the host ids of boxd and of the tools in the boxes of a scope. All are 0 if no ids are allocated. They
// are 0 as well for the box of a trusted session with files of its own, which runs as the server's user.
type Users struct{ Boxd, Tool, ToolGID uint32 }

// Users returns the host ids for a scope's box of a session with the given trust. files is the row of the session that
// owns the scope's files. The box of a trusted session of a workspace runs as the owner of the workspace's files.
func (c *Config) Users(sc Scope, files journal.Row, trust holdfast.Trust) (u Users) {
	if trust == holdfast.Trusted {
		return Users{sc.ToolUID, sc.ToolUID, sc.ToolGID}
	}
	if u.Boxd = cmp.Or(sc.BoxdUID, c.derivedUID(files)); files.BoxUID != 0 && sc.BoxdUID == 0 {
		u.Boxd = files.BoxUID
	}
	switch {
	case u.Boxd == 0:
	case sc.ToolUID != 0:
		u.Tool, u.ToolGID = sc.ToolUID, sc.ToolGID
	default:
		u.Tool, u.ToolGID = u.Boxd+1, u.Boxd+1
	}
	return u
}

// derivedUID returns the first of the two host ids that follow from a session's number. They apply unless its row
// stores others. It returns 0 if no ids are allocated.
func (c *Config) derivedUID(row journal.Row) uint32 {
	if c.UIDBase == 0 {
		return 0
	}
	return c.UIDBase + 2*uint32(row.Number)
}

// seed makes the workspace of a session's scope and copies the agent's files into it, once: they
// are durable before the row records that, and existing files are never overwritten. A workspace
// whose loss was accepted is made in the same way. If a ready boot exists, seed reserves it for
// the box; the row then stores the host ids of its files, and the returned spec contains them.
func (b *Boxes) seed(ctx context.Context, session journal.Row, pool *pool.Pool, spec sandbox.Spec) (sandbox.Spec, error) {
	sc := b.Scope(session.ID)
	id := sc.Owner
	owner := b.claims.join(id)
	defer b.claims.leave(id, owner)
	owner.seed.Lock()
	defer owner.seed.Unlock()
	row, err := b.sessions.Row(ctx, id)
	if err != nil {
		return spec, err
	}
	if row.FilesSeeded && row.HadFiles {
		now, err := b.spec(ctx, session, row)
		now.Walls = spec.Walls
		return now, err
	}
	yes := true
	set := journal.RowPatch{FilesSeeded: &yes, HadFiles: &yes}
	if sc.Borrowed {
		return spec, b.sessions.Seeded(ctx, id, set)
	}
	var files []rooted.File
	if !row.FilesSeeded {
		if files, err = b.sessions.Files(ctx, row.AgentVersion); err != nil {
			return spec, err
		}
	}
	if row.Trust != holdfast.Trusted && !row.FilesSeeded && !row.HadFiles {
		if spec = b.reserve(pool, spec); spec.BoxdUID != b.cfg.derivedUID(row) {
			set.BoxUID = &spec.BoxdUID
		}
	}
	uid, gid := os.Getuid(), os.Getgid()
	if b.cfg.UIDBase != 0 && spec.ToolUID != 0 {
		uid, gid = int(spec.ToolUID), int(spec.ToolGID)
	}
	if sc.Tree != "" {
		b.seeding.Lock() // other sessions may write to the same tree
		defer b.seeding.Unlock()
	}
	kept, err := b.cfg.Files.Seed(ctx, sc.Workspace(), files, uid, gid)
	if err != nil {
		return spec, err
	}
	return spec, b.sessions.Seeded(ctx, id, set, keptNotice(kept)...)
}

// noticeKept is the code of the notice that lists files of the agent's folder that were not copied, because the
// workspace has something else at their paths. The notice names at most mostKept of these files.
const (
	noticeKept = "agent_files.kept"
	mostKept   = 20
)

// keptNotice returns the notice for the paths that Files.Seed returned; none if there are none.
func keptNotice(kept []string) []journal.Draft {
	if len(kept) == 0 {
		return nil
	}
	more := ""
	if n := len(kept) - mostKept; n > 0 {
		kept, more = kept[:mostKept], fmt.Sprintf(" and %d more", n)
	}
	names := make([]string, len(kept))
	for i, name := range kept {
		names[i] = holdfast.Quote(name)
	}
	text := "files of the agent's folder were not copied, because the workspace has something else at their paths: " +
		strings.Join(names, ", ") + more
	return []journal.Draft{{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: noticeKept, Text: text}}}
}

// reserve reserves a ready boot, if there is one, for a session whose box never ran. If a
// reservation was interrupted before its commit, its directory exists, and reserve uses that
// directory's ids again: only this server has written to it.
func (b *Boxes) reserve(pool *pool.Pool, spec sandbox.Spec) sandbox.Spec {
	reserved, ok := pool.Reserve(spec)
	if ok || b.cfg.UIDBase == 0 {
		return reserved
	}
	info, err := os.Lstat(filepath.Join(spec.Dir, "state"))
	if err != nil {
		return spec
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid >= b.cfg.UIDBase+ReadyUIDs {
		spec.BoxdUID, spec.ToolUID, spec.ToolGID = st.Uid, st.Uid+1, st.Uid+1
	}
	return spec
}
