package workspaces_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/workspaces"
)

// boxed stands for the engine and its boxes: it notes what a deletion asks for, and what is there at that moment.
type boxed struct {
	h    *home
	did  []string
	fail string
	// unsaved is true if no checkpoint can be taken.
	unsaved bool
	files   string
	// leaves is called when a session leaves its workspace.
	leaves func()
}

func (b *boxed) note(what string) error {
	if _, err := os.Stat(b.files); err == nil {
		what += ", files there"
	}
	if _, err := os.Stat(b.h.config("site")); err == nil {
		what += ", config there"
	}
	b.did = append(b.did, what)
	if b.fail != "" && b.fail == what[:len(b.fail)] {
		return errors.New("broken")
	}
	return nil
}

func (b *boxed) Pause(ctx context.Context, id holdfast.SessionID, _ holdfast.EndSession) (holdfast.Session, error) {
	if err := b.note("pause"); err != nil {
		return holdfast.Session{}, err
	}
	row, err := b.h.store.Sessions.Row(ctx, id)
	if err != nil || row.Status != holdfast.StatusActive {
		return row.Session, err
	}
	c := journal.NewChange(id)
	c.Status = []holdfast.Status{holdfast.StatusPaused}
	done, err := b.h.journal.Commit(ctx, c)
	return done.Row.Session, err
}

func (b *boxed) Settle(context.Context, holdfast.SessionID) error { return b.note("settle") }

func (b *boxed) Alone(ctx context.Context, id holdfast.SessionID, work func(journal.Row) error) error {
	row, err := b.h.store.Sessions.Row(ctx, id)
	if err != nil {
		return err
	}
	return work(row)
}

func (b *boxed) Leave(context.Context, journal.Row) error {
	if b.leaves != nil {
		b.leaves()
	}
	return b.note("leave")
}

func (b *boxed) RemoveFiles(context.Context, holdfast.SessionID) error {
	return b.note("remove its own")
}

func (*boxed) Moved(holdfast.SessionID) {}

// join stores a session of a workspace.
func (h *home) join(t *testing.T, id holdfast.Slug) holdfast.SessionID {
	t.Helper()
	uuid, err := holdfast.NewUUID(time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := journal.NewChange(holdfast.SessionID(uuid))
	c.Create = &journal.Row{Session: holdfast.Session{
		ID: holdfast.SessionID(uuid), Status: holdfast.StatusActive, Agent: holdfast.DefaultAgent, Trust: holdfast.Untrusted, Workspace: id,
		AgentVersion: holdfast.VersionID("sha256:" + strings.Repeat("a", 64)), CreatedAt: time.Now(), LastActiveAt: time.Now(),
		Runtime: "native", Model: "m", Mode: holdfast.ModeDefault, Tags: []string{},
	}}
	if _, err := h.journal.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return holdfast.SessionID(uuid)
}

// boxed lets a deletion reach b instead of an engine, from the next restart on.
func (h *home) boxed(t *testing.T) *boxed {
	b := &boxed{h: h, files: filepath.Join(filepath.Dir(h.config("site")), "files", "kept")}
	h.cfg.Engine, h.cfg.Boxes = func() workspaces.Engine { return b }, func() workspaces.Boxes { return b }
	h.cfg.Save = func(ctx context.Context, rows workspaces.List) (unsaved []holdfast.SessionID, err error) {
		for row, err := range journal.Each(ctx, rows, journal.Query{}) {
			if err != nil {
				return nil, err
			}
			if b.unsaved {
				unsaved = append(unsaved, row.ID)
			}
		}
		return unsaved, b.note("save")
	}
	h.cfg.Running = func(context.Context, holdfast.SessionID) (bool, error) { return false, nil }
	h.restart(t)
	return b
}

// TestWSR110_OrderOfADeletion: the box of each session ends before its workspace's files are moved, and these are moved, with
// config.yaml, before the row is removed. A deletion that fails on the way, or whose server ends, is completed by the next
// start; until then the workspace takes no session. Its sessions stay (WS-R110, WS-R113, WS-R115).
func TestWSR110_OrderOfADeletion(t *testing.T) {
	for _, own := range []bool{false, true} {
		h := open(t)
		b := h.boxed(t)
		req := holdfast.CreateWorkspace{ID: "site"}
		if own {
			req.Dir = h.dir(t, "own")
			b.files = filepath.Join(req.Dir, "kept")
		}
		if _, err := h.Create(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		h.put(t, b.files, "kept")
		id := h.join(t, "site")

		b.fail = "leave"
		if _, err := h.Delete(t.Context(), "site", false, false); err == nil {
			t.Error("a deletion whose box does not end has no error")
		}
		if _, err := h.For(t.Context(), "site", "", ""); !holdfast.IsKind(err, holdfast.KindConflict) {
			t.Errorf("a session for a workspace that is being deleted: %v", err)
		}
		h.get(t, "site")
		b.fail = ""
		h.restart(t)
		want := []string{"pause", "settle", "save", "leave", "remove its own", "pause", "settle", "save", "leave", "remove its own"}
		for i := range want {
			want[i] += ", files there, config there"
		}
		if !slices.Equal(b.did, want) {
			t.Errorf("own %t: %q, want %q", own, b.did, want)
		}
		if _, err := h.Get(t.Context(), "site"); !holdfast.IsKind(err, holdfast.KindNotFound) {
			t.Errorf("own %t: after the start: %v", own, err)
		}
		if _, err := os.Lstat(h.config("site")); !os.IsNotExist(err) {
			t.Errorf("own %t: config.yaml is there: %v", own, err)
		}
		if _, err := os.Lstat(b.files); (err == nil) != own {
			t.Errorf("own %t: the files: %v", own, err)
		}
		row, err := h.store.Sessions.Row(t.Context(), id)
		if err != nil || row.Workspace != "" || row.Status != holdfast.StatusPaused {
			t.Errorf("own %t: its session: %+v, %v", own, row.Session, err)
		}
	}
}

// TestNoDeletionOfUnsavedFiles: a session keeps its home, and its workspace stays, until a checkpoint has the session's
// files. A directory of the user's own that is gone gets no checkpoint any more, so it stops no deletion.
func TestNoDeletionOfUnsavedFiles(t *testing.T) {
	h := open(t)
	b := h.boxed(t)
	own := h.dir(t, "own")
	for _, req := range []holdfast.CreateWorkspace{{ID: "site"}, {ID: "own", Dir: own}} {
		if _, err := h.Create(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	for _, slug := range []holdfast.Slug{"site", "own"} {
		id := h.join(t, slug)
		b.did, b.unsaved = nil, true
		if _, err := h.Delete(t.Context(), slug, false, false); !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), string(id)) {
			t.Errorf("%s: without a checkpoint of the files: %v", slug, err)
		}
		if err := h.Complete(t.Context()); err != nil {
			t.Error(err)
		}
		if did := strings.Join(b.did, " "); strings.Contains(did, "leave") || strings.Contains(did, "remove") {
			t.Errorf("%s: %q", slug, b.did)
		}
		if row, err := h.store.Sessions.Row(t.Context(), id); err != nil || row.Workspace != slug {
			t.Errorf("%s: its session: %+v, %v", slug, row.Session, err)
		}
		if b.unsaved = slug == "own"; b.unsaved {
			if err := os.Remove(own); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.Complete(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := h.Get(t.Context(), slug); !holdfast.IsKind(err, holdfast.KindNotFound) {
			t.Errorf("%s: once nothing is unsaved: %v", slug, err)
		}
	}
}

// unlisted is a store of which the list of workspaces cannot be read any more once broken is true.
type unlisted struct {
	workspaces.Store
	broken bool
}

func (u *unlisted) Workspaces(ctx context.Context) ([]workspaces.Record, error) {
	if u.broken {
		return nil, errors.New("the disk is gone")
	}
	return u.Store.Workspaces(ctx)
}

// TestFailedDeletionsAreTriedAgain: a deletion that cannot be completed keeps no server from starting. A warning names
// the workspace and what to do, the workspace takes no session, and the server tries again.
func TestFailedDeletionsAreTriedAgain(t *testing.T) {
	h := open(t)
	b := h.boxed(t)
	for _, id := range []string{"site", "other"} {
		if _, err := h.Create(t.Context(), holdfast.CreateWorkspace{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	h.put(t, b.files, "kept")
	h.join(t, "site")
	// The trash cannot be made, as if something were mounted there.
	h.put(t, filepath.Join(h.data, "workspaces", ".trash"), "no directory")
	if _, err := h.Delete(t.Context(), "site", false, false); err == nil {
		t.Error("a deletion whose files cannot be moved has no error")
	}
	h.log.Reset()
	h.restart(t)
	if said := h.log.String(); !strings.Contains(said, "level=WARN") || !strings.Contains(said, "workspace=site") || !strings.Contains(said, "holdfast workspace delete site") {
		t.Errorf("the log: %s", said)
	}
	if err := h.Complete(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := h.For(t.Context(), "site", "", ""); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("a session for a workspace that is being deleted: %v", err)
	}
	if err := os.Remove(filepath.Join(h.data, "workspaces", ".trash")); err != nil {
		t.Fatal(err)
	}
	if err := h.Complete(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := h.Get(t.Context(), "site"); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("after the cause is gone: %v", err)
	}
	h.get(t, "other")

	store := &unlisted{Store: h.cfg.Store}
	h.cfg.Store = store
	h.restart(t)
	store.broken = true
	if err := h.Resume(t.Context()); err == nil {
		t.Error("a list of workspaces that cannot be read has no error")
	}
}

// TestDeletionsOfOneWorkspace: each session leaves its workspace once, although deletions of the workspace overlap.
func TestDeletionsOfOneWorkspace(t *testing.T) {
	h := open(t)
	b := h.boxed(t)
	if _, err := h.Create(t.Context(), holdfast.CreateWorkspace{ID: "site"}); err != nil {
		t.Fatal(err)
	}
	h.join(t, "site")
	var late chan error
	b.leaves = func() {
		if late != nil {
			t.Error("a session leaves its workspace twice")
			return
		}
		if err := h.Complete(t.Context()); err != nil {
			t.Error(err)
		}
		late = make(chan error, 1)
		go func() {
			_, err := h.Delete(t.Context(), "site", false, false)
			late <- err
		}()
	}
	if _, err := h.Delete(t.Context(), "site", false, false); err != nil {
		t.Fatal(err)
	}
	if err := <-late; err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Error(err)
	}
}
