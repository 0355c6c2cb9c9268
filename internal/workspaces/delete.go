package workspaces

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/rooted"
)

func beingDeleted(id holdfast.Slug) error {
	return holdfast.Errorf(holdfast.KindConflict, "workspace", "workspace %s is being deleted", id).WithHint("holdfast workspace list shows the other workspaces")
}

// The values of DeletedWorkspace.Files.
const (
	filesTrashed = "trashed"
	filesKept    = "kept"
)

// Delete takes all sessions out of a workspace, moves the workspace's files to the trash, and removes the workspace. Each
// session goes on in a copy of its newest checkpoint. A directory of the user's own stays as it is. Delete fails with
// conflict if a turn runs, unless force is true. Once the deletion has begun, a session accepts no message until it is out
// of the workspace. Delete fails with unavailable if no checkpoint has the newest files of a session, unless the user's
// directory is gone. With dryRun it changes nothing. Resume, Complete or another call continue an unfinished deletion.
func (w *Workspaces) Delete(ctx context.Context, id holdfast.Slug, force, dryRun bool) (holdfast.DeletedWorkspace, error) {
	out := holdfast.DeletedWorkspace{DryRun: dryRun, Sessions: []holdfast.SessionID{}, Files: filesTrashed}
	r, err := w.cfg.Store.Workspace(ctx, id)
	if err != nil {
		return out, err
	}
	if r.Dir != "" {
		out.Files = filesKept
	}
	if !dryRun {
		defer closing(w, id)()
	}
	for _, session := range w.Members(id) {
		row, running, err := w.state(ctx, session)
		if holdfast.IsKind(err, holdfast.KindNotFound) {
			continue
		}
		if err != nil {
			return out, err
		}
		if running {
			out.Running++
		}
		out.Sessions = append(out.Sessions, row.ID)
	}
	switch {
	case dryRun:
		return out, nil
	case out.Running > 0 && !force:
		return out, holdfast.Errorf(holdfast.KindConflict, "workspace.delete", "workspace %s has %d active session(s)", id, out.Running).
			WithHint("wait for their turns, or end them: holdfast workspace delete %s --force", id)
	}
	if !r.Deleting {
		r.Deleting = true
		if r, err = w.cfg.Store.ChangeWorkspace(ctx, r); err != nil {
			return out, err
		}
		w.keep(r)
	}
	lock := w.ends.of(id)
	lock.Lock()
	defer lock.Unlock()
	return out, w.end(context.WithoutCancel(ctx), r)
}

// closing keeps the sessions of a workspace from accepting messages until reopen is called: a turn that starts after Delete
// looked for turns would be interrupted.
func closing(w *Workspaces, id holdfast.Slug) (reopen func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed[id]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.closed[id]--; w.closed[id] == 0 {
			delete(w.closed, id)
		}
	}
}

// Accepting returns a function that fails with conflict for a session whose workspace is being deleted: it accepts no
// message until it has files of its own.
func Accepting(w *Workspaces) func(id holdfast.SessionID) error {
	return func(id holdfast.SessionID) error {
		w.mu.RLock()
		defer w.mu.RUnlock()
		slug := w.members[id].Workspace
		if slug == "" || w.closed[slug] == 0 && !w.records[slug].Deleting {
			return nil
		}
		return holdfast.Errorf(holdfast.KindConflict, "workspace", "workspace %s of session %s is being deleted", slug, id).
			WithHint("try again in a minute: the session then has files of its own; if it does not, holdfast workspace delete %s says why", slug)
	}
}

// Resume ends the deletions that a former server began, as Complete does, and imports or writes each config.yaml, so that
// it agrees with the database. The caller has started the engine. Resume fails only if the workspaces cannot be read.
func (w *Workspaces) Resume(ctx context.Context) error {
	defer w.cfg.Sealer.Hold()()
	w.config.mu.Lock()
	w.config.resumed = true
	w.config.mu.Unlock()
	list, err := w.cfg.Store.Workspaces(ctx)
	if err != nil {
		return err
	}
	for _, r := range list {
		if !r.Deleting {
			w.config.refresh(ctx, r.ID, true)
		}
	}
	return w.Complete(ctx)
}

// Complete ends the deletions that have begun, except those that another call is ending. One that fails is logged, and
// the next call tries it again. The error says that the workspaces cannot be read.
func (w *Workspaces) Complete(ctx context.Context) error {
	list, err := w.cfg.Store.Workspaces(ctx)
	for _, r := range list {
		lock := w.ends.of(r.ID)
		if !r.Deleting || !lock.TryLock() {
			continue
		}
		if err := w.end(ctx, r); err != nil && ctx.Err() == nil {
			w.cfg.Log.WarnContext(ctx, "a workspace was not deleted; the next try follows", "workspace", r.ID, "error", err,
				"hint", cmp.Or(holdfast.HintOf(err), "remove the cause; to try at once: holdfast workspace delete "+string(r.ID)))
		}
		lock.Unlock()
	}
	return err
}

// locks has one lock for each workspace, by the workspace's slug.
type locks struct{ all sync.Map }

func (l *locks) of(id holdfast.Slug) *sync.Mutex {
	lock, _ := l.all.LoadOrStore(id, &sync.Mutex{})
	return lock.(*sync.Mutex)
}

// end completes the deletion of the workspace r, unless another call has completed it. The caller holds the lock in
// w.ends.
func (w *Workspaces) end(ctx context.Context, r Record) error {
	now, err := w.cfg.Store.Workspace(ctx, r.ID)
	if holdfast.IsKind(err, holdfast.KindNotFound) || err == nil && now.Number != r.Number {
		return nil
	}
	if err != nil {
		return err
	}
	return w.dissolve(ctx, now)
}

// Members returns the sessions of a workspace, in the order of their ids.
func (w *Workspaces) Members(id holdfast.Slug) []holdfast.SessionID {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return slices.Clone(w.sessions[id])
}

// state returns a session, and whether it is active and a turn of it runs or waits.
func (w *Workspaces) state(ctx context.Context, id holdfast.SessionID) (row journal.Row, running bool, err error) {
	err = w.cfg.Engine().Alone(ctx, id, func(r journal.Row) error {
		row = r
		return nil
	})
	if err == nil && row.Status == holdfast.StatusActive {
		running, err = w.cfg.Running(ctx, id)
	}
	return row, running, err
}

// dissolve takes all sessions out of a workspace whose deletion has begun, and removes the workspace. The store adds
// no session to it any more.
func (w *Workspaces) dissolve(ctx context.Context, r Record) error {
	members, err := w.cfg.Store.Members(ctx)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(members)) {
		if members[id].Workspace != r.ID {
			continue
		}
		if err := w.takeOut(ctx, r, id); err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
			return err
		}
	}
	if err := w.config.forget(r); err != nil {
		return err
	}
	if err := w.cfg.Store.RemoveWorkspace(ctx, r.ID); err != nil {
		return err
	}
	forget(w, r)
	return nil
}

// takeOut ends the box of a session, removes the session's own files outside of the workspace, and takes the session
// out of the workspace r. It returns the error of save, such as that no checkpoint has the session's newest files.
func (w *Workspaces) takeOut(ctx context.Context, r Record, id holdfast.SessionID) error {
	for {
		_, err := w.cfg.Engine().Pause(ctx, id, holdfast.EndSession{Interrupt: true, Reason: "its workspace was deleted"})
		if err != nil && !holdfast.IsKind(err, holdfast.KindConflict) && !holdfast.IsKind(err, holdfast.KindGone) {
			return err
		}
		// The session goes on with the files of its newest checkpoint, which may still be on its way.
		if err := w.cfg.Engine().Settle(ctx, id); err != nil {
			return err
		}
		if err := w.save(ctx, r, id); err != nil {
			return err
		}
		again := false
		err = w.cfg.Engine().Alone(ctx, id, func(row journal.Row) error {
			// A message may have resumed the session meanwhile.
			if again = row.Status == holdfast.StatusActive || row.Status == holdfast.StatusStarting; again {
				return nil
			}
			return w.leave(ctx, row)
		})
		if err != nil || !again {
			return err
		}
	}
}

// save makes sure that a checkpoint has the newest files of a session, because leave removes the session's home directory.
// A workspace in a user's own directory that is gone or was replaced gets no new checkpoint: its sessions go on with their
// newest one.
func (w *Workspaces) save(ctx context.Context, r Record, id holdfast.SessionID) error {
	if w.Intact(r) != nil {
		return nil
	}
	unsaved, err := w.cfg.Save(ctx, func(ctx context.Context, _ journal.Query) (page journal.Page, err error) {
		err = w.cfg.Engine().Alone(ctx, id, func(row journal.Row) error {
			page.Rows = append(page.Rows, row)
			return nil
		})
		return page, err
	})
	if err != nil || len(unsaved) == 0 {
		return err
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "workspace.delete", "workspace %s is not deleted yet: no checkpoint has the newest files of session %s, and a deletion would remove the session's home directory", r.ID, id).
		WithHint("holdfast session events %s says why no checkpoint was taken; to give up the files that no checkpoint has: holdfast session end %s", id, id)
}

// leave takes a session out of its workspace. The session is not active: no turn of it runs. If leave ends between the
// removal of the home and the commit, checkpoints until the next try have the home of the checkpoint that save made.
func (w *Workspaces) leave(ctx context.Context, row journal.Row) error {
	boxes := w.cfg.Boxes()
	if err := errors.Join(boxes.Leave(ctx, row), boxes.RemoveFiles(ctx, row.ID)); err != nil {
		return err
	}
	c := journal.NewChange(row.ID)
	none, no := holdfast.Slug(""), false
	c.Set = &journal.RowPatch{Workspace: &none, FilesSeeded: &no, HadFiles: &no}
	c.Events = []journal.Draft{{Type: holdfast.EventNotice, Data: holdfast.Notice{
		Code: "workspace.deleted",
		Text: "workspace " + string(row.Workspace) + " was deleted: the session goes on in a workspace of its own, with the files of its newest checkpoint, under the rules and limits of the old one",
	}}}
	err := w.cfg.Leave(ctx, row, c)
	boxes.Moved(row.ID)
	return err
}

// trash is the directory of the files of deleted workspaces.
func (c Config) trash() string { return filepath.Join(c.Data, "workspaces", ".trash") }

// discard moves what the data directory has of a deleted workspace to the trash: the files that the server made, and
// config.yaml. If something else than a directory is at the directory's path, such as a symlink, it is removed.
func (c Config) discard(r Record) error {
	dir := c.dir(r.ID)
	to := filepath.Join(c.trash(), string(r.ID)+"."+strconv.FormatInt(r.Number, 10))
	st, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(to); err != nil {
			return nil // there is neither a directory to move nor one in the trash
		}
		return c.syncTrash() // a former server moved the directory, but may have ended before this sync
	case err != nil:
		return err
	case !st.IsDir():
		return os.Remove(dir)
	}
	if err := durable.MkdirAll(c.trash(), 0o700); err != nil {
		return err
	}
	// Empty takes the directory's modification time as the time of deletion. It is set before the move, so that every
	// directory in the trash has the right time, also after a crash.
	now := c.Clock()
	if err := errors.Join(os.Chtimes(dir, now, now), durable.SyncDir(dir)); err != nil {
		return err
	}
	if err := os.Rename(dir, to); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "workspace.delete", "the files of workspace %s cannot be moved to the trash: %w", r.ID, err).
			WithHint("unmount what findmnt shows in the directory %s; to try the deletion again at once: holdfast workspace delete %s", dir, r.ID)
	}
	return c.syncTrash()
}

// syncTrash makes the moves to the trash durable.
func (c Config) syncTrash() error {
	return errors.Join(durable.SyncDir(filepath.Dir(c.trash())), durable.SyncDir(c.trash()))
}

// Trashed lists the deleted workspaces whose files are still in the trash, ordered by slug.
func (w *Workspaces) Trashed(context.Context) (out []holdfast.DeletedWorkspace, err error) {
	list, err := os.ReadDir(w.cfg.trash())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range list {
		name, _, _ := strings.Cut(e.Name(), ".")
		if info, ierr := e.Info(); ierr == nil { // an error is ignored: Empty may have removed the directory meanwhile
			at := info.ModTime().UTC()
			out = append(out, holdfast.DeletedWorkspace{ID: holdfast.Slug(name), DeletedAt: &at, Sessions: []holdfast.SessionID{}, Files: filesTrashed})
		}
	}
	return out, err
}

// Empty removes the files of workspaces that were deleted longer ago than keep.
func (w *Workspaces) Empty(ctx context.Context, keep time.Duration) error {
	list, err := os.ReadDir(w.cfg.trash())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range list {
		if info, ierr := e.Info(); ierr == nil && w.cfg.Clock().Sub(info.ModTime()) >= keep && ctx.Err() == nil {
			err = errors.Join(err, rooted.RemoveAll(filepath.Join(w.cfg.trash(), e.Name())))
		}
	}
	return err
}
