package workspaces_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/workspaces"
)

var errFull = errors.New("no space left on device")

// TestCreationThatFails: a workspace whose files cannot be made is gone, also if its client has gone away meanwhile. It
// can then be created.
func TestCreationThatFails(t *testing.T) {
	h := open(t)
	works := h.cfg.Make
	ctx, cancel := context.WithCancel(t.Context())
	h.cfg.Make = func(tree string, n int64) error {
		if ctx.Err() != nil {
			return works(tree, n)
		}
		cancel()
		return errFull
	}
	h.restart(t)
	if _, err := h.Create(ctx, holdfast.CreateWorkspace{ID: "site"}); !errors.Is(err, errFull) {
		t.Errorf("without space: %v", err)
	}
	if _, err := h.For(t.Context(), "site", "", ""); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("a session in what was not created: %v", err)
	}
	h.create(t, "site", holdfast.WorkspaceSettings{Permissions: deny})
	h.denies(t, "site")
	if _, err := h.For(t.Context(), "site", "", ""); err != nil {
		t.Errorf("a session: %v", err)
	}
}

// stuck is a store that cannot remove workspaces while it is broken.
type stuck struct {
	workspaces.Store
	broken bool
}

func (s *stuck) RemoveWorkspace(ctx context.Context, id holdfast.Slug) error {
	if s.broken {
		return errors.New("the disk is full")
	}
	return s.Store.RemoveWorkspace(ctx, id)
}

// TestCreationThatStays: the settings of a workspace that is stored and has no files are in force, and it gets no session.
// It can be deleted, and the next start makes its files.
func TestCreationThatStays(t *testing.T) {
	for _, restart := range []bool{false, true} {
		h := open(t)
		h.boxed(t)
		works, store := h.cfg.Make, &stuck{h.store.Workspaces, true}
		h.cfg.Store, h.cfg.Make = store, func(string, int64) error { return errFull }
		h.restart(t)
		req := holdfast.CreateWorkspace{ID: "site", WorkspaceSettings: holdfast.WorkspaceSettings{Network: &[]string{}, Permissions: deny}}
		if _, err := h.Create(t.Context(), req); !errors.Is(err, errFull) {
			t.Errorf("without space: %v", err)
		}
		h.denies(t, "site")
		if list := workspaces.Networks(h.Workspaces)("site"); list == nil {
			t.Error("its network restricts nothing")
		}
		_, err := h.For(t.Context(), "site", "", "")
		isKind(t, err, holdfast.KindConflict, "site")
		store.broken, h.cfg.Make = false, works
		if restart {
			h.restart(t)
		} else {
			if _, err := h.Delete(t.Context(), "site", false, false); err != nil {
				t.Fatal(err)
			}
			h.cfg.Store = h.store.Workspaces
			h.restart(t)
			h.create(t, "site", holdfast.WorkspaceSettings{})
		}
		if _, err := h.For(t.Context(), "site", "", ""); err != nil {
			t.Errorf("restarted %t: a session: %v", restart, err)
		}
	}
}

// TestSessionsWaitForTheFiles: a workspace gets no session before its files are made, and its settings are in force from
// the moment at which it is stored.
func TestSessionsWaitForTheFiles(t *testing.T) {
	h := open(t)
	works, store := h.cfg.Make, &between{Store: h.store.Workspaces}
	asked := 0
	ask := func() {
		asked++
		_, err := h.For(t.Context(), "site", "", "")
		isKind(t, err, holdfast.KindConflict, "site")
	}
	h.cfg.Store = store
	h.cfg.Make = func(tree string, n int64) error {
		ask()
		h.denies(t, "site")
		return works(tree, n)
	}
	h.restart(t)
	store.after = ask
	h.create(t, "site", holdfast.WorkspaceSettings{Permissions: deny})
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
	if _, err := h.For(t.Context(), "site", "", ""); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestPurgedSessionsLeave: a session that is removed for good is in no workspace any more; one whose removal fails stays.
func TestPurgedSessionsLeave(t *testing.T) {
	h := open(t)
	h.create(t, "site", holdfast.WorkspaceSettings{})
	one, two := h.join(t, "site"), h.join(t, "site")
	one, two = min(one, two), max(one, two) // members are in the order of their ids
	store := workspaces.Purging{Sessions: h.store.Sessions, To: h.Workspaces}
	if err := store.DeleteSession(t.Context(), one); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("a session that has not ended: %v", err)
	}
	if _, ok := h.Of(one); !ok || !slices.Equal(h.Members("site"), []holdfast.SessionID{one, two}) {
		t.Errorf("after a removal that failed: %v", h.Members("site"))
	}
	c := journal.NewChange(one)
	c.Status = []holdfast.Status{holdfast.StatusEnded}
	if _, err := h.journal.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := store.DeleteSession(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if _, ok := h.Of(one); ok || !slices.Equal(h.Members("site"), []holdfast.SessionID{two}) {
		t.Errorf("members %v, want %s alone", h.Members("site"), two)
	}
}

// TestHomesAreNoWorkspaces: a directory that is or contains the home directory of a user is not a workspace, also if the
// home is configured with a path that leads through a symlink.
func TestHomesAreNoWorkspaces(t *testing.T) {
	h := open(t)
	user := h.dir(t, "moved/user")
	for link, to := range map[string]string{"homes": filepath.Dir(user), "own": user} {
		if err := os.Symlink(to, filepath.Join(h.own, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, home := range []string{filepath.Join(h.own, "homes", "user"), filepath.Join(h.own, "own")} {
		t.Setenv("HOME", home)
		for _, dir := range []string{user, filepath.Dir(user)} {
			_, err := h.Create(t.Context(), holdfast.CreateWorkspace{Dir: dir})
			isKind(t, err, holdfast.KindInvalid, dir, "home directory")
		}
	}
	if _, err := h.Create(t.Context(), holdfast.CreateWorkspace{Dir: h.dir(t, "moved/user/project")}); err != nil {
		t.Error(err)
	}
}
