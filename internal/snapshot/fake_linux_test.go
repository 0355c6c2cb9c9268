package snapshot_test

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
)

// boxes implements snapshot.Boxes without boxes.
type boxes struct{ w *world }

func (b boxes) Files(_ context.Context, row journal.Row) (snapshot.Files, error) {
	f := snapshot.Files{Scope: row.ID.Box(), Dir: b.w.dir(row.ID), Had: row.HadFiles, Owners: owners()}
	if b.w.mine != "" && row.ID == b.w.id {
		f.Workspace, f.Borrowed = b.w.mine, true
		f.Lent, f.Same = user(), b.w.same
	}
	return f, nil
}

// same fails, as workspaces.Intact does, for another directory than the user's.
func (w *world) same(top rooted.Entry) error {
	if w.inode == 0 || top.Mode.IsDir() && top.Ino == w.inode && int(top.UID) == user().UID {
		return nil
	}
	return holdfast.Errorf(holdfast.KindConflict, "workspace", "the directory %s is not what it was", w.mine).WithHint("put it back")
}

// user is the owner of directories of the user's own: not the server's user, if that is root.
func user() tree.User {
	if os.Getuid() == 0 {
		return tree.User{UID: 4242, GID: 4343}
	}
	return tree.User{UID: os.Getuid(), GID: os.Getgid()}
}

func owners() tree.Owners {
	return tree.Owners{Agent: tree.User{UID: os.Getuid(), GID: os.Getgid()}, Boxd: tree.User{UID: os.Getuid() + 1, GID: os.Getgid() + 1}}
}

func (b boxes) Alive(context.Context, journal.Row) bool {
	if b.w.reached != nil {
		b.w.reached("alive")
	}
	return b.w.alive
}

func (b boxes) Still(ctx context.Context, _ journal.Row, _ time.Duration, ready <-chan struct{}, fn func(context.Context) error) (bool, error) {
	select {
	case <-ready:
		b.w.halts = append(b.w.halts, false)
	case <-ctx.Done():
		b.w.halts = append(b.w.halts, true)
		return false, ctx.Err()
	}
	if b.w.still != nil {
		b.w.still()
	}
	return true, errors.Join(fn(ctx), b.w.thaw())
}

func (b boxes) Between(id holdfast.SessionID, work func(context.Context, journal.Row)) <-chan struct{} {
	work(b.w.t.Context(), b.w.rowOf(id))
	done := make(chan struct{})
	close(done)
	return done
}

// people implements branch.Sessions for a server without turns.
type people struct{ s *server }

func (p people) Quiet(ctx context.Context, id holdfast.SessionID, _ string, _ bool, work func(context.Context, journal.Row) error) (journal.Row, error) {
	if err := work(ctx, p.s.w.rowOf(id)); err != nil {
		return journal.Row{}, err
	}
	return p.s.w.rowOf(id), nil
}

func (p people) Between(id holdfast.SessionID, work func(context.Context, journal.Row)) <-chan struct{} {
	return boxes{p.s.w}.Between(id, work)
}

func (p people) Working(holdfast.SessionID) holdfast.SessionID { return "" }

func (p people) Rested(context.Context, holdfast.SessionID) {}

func (p people) Conversation(ctx context.Context, id holdfast.SessionID, use func(*conversation.Conversation) error) error {
	c, err := conversation.Read(p.s.journal.Read(ctx, id, 0))
	if err != nil {
		return err
	}
	return use(c)
}

func (p people) Choose(_ context.Context, from journal.Row, req holdfast.ForkSession) (journal.Row, []journal.Draft, error) {
	row := journal.Row{Session: from.Session}
	if row.ID = req.ID; row.ID == "" {
		row.ID = holdfast.SessionID(p.s.w.newID())
	}
	return row, []journal.Draft{{Type: holdfast.EventSessionCreated}}, nil
}
