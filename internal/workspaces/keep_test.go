package workspaces_test

import (
	"context"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/workspaces"
)

// between is a store that calls after once, when something has been stored and its caller does not know of it yet.
type between struct {
	workspaces.Store
	after func()
}

func (b *between) stored() {
	if after := b.after; after != nil {
		b.after = nil
		after()
	}
}

func (b *between) AddWorkspace(ctx context.Context, r workspaces.Record) (workspaces.Record, error) {
	defer b.stored()
	return b.Store.AddWorkspace(ctx, r)
}

func (b *between) ChangeWorkspace(ctx context.Context, r workspaces.Record) (workspaces.Record, error) {
	defer b.stored()
	return b.Store.ChangeWorkspace(ctx, r)
}

func (b *between) RemoveWorkspace(ctx context.Context, id holdfast.Slug) error {
	defer b.stored()
	return b.Store.RemoveWorkspace(ctx, id)
}

// retitled changes a workspace; meanwhile happens after the change was stored, before the server uses it.
func (h *home) retitled(t *testing.T, id holdfast.Slug, meanwhile func()) {
	t.Helper()
	h.cfg.Store = &between{h.store.Workspaces, meanwhile}
	h.restart(t)
	title := "another"
	if _, err := h.Update(t.Context(), id, holdfast.UpdateWorkspace{WorkspaceSettings: holdfast.WorkspaceSettings{Title: &title}}); err != nil {
		t.Fatal(err)
	}
}

var deny = map[string][]string{"deny": {"Bash(rm *)"}}

// TestTheNewestSettingsAreInForce: of two changes at once the one that was stored last is in force, whichever of them ends
// last.
func TestTheNewestSettingsAreInForce(t *testing.T) {
	h := open(t)
	if _, err := h.Create(t.Context(), holdfast.CreateWorkspace{ID: "site"}); err != nil {
		t.Fatal(err)
	}
	h.retitled(t, "site", func() {
		req := holdfast.UpdateWorkspace{WorkspaceSettings: holdfast.WorkspaceSettings{Permissions: deny}}
		if _, err := h.Update(t.Context(), "site", req); err != nil {
			t.Error(err)
		}
	})
	h.denies(t, "site")
}

// denies checks that the rule of these tests is in force in a workspace.
func (h *home) denies(t *testing.T, id holdfast.Slug) {
	t.Helper()
	rules, err := workspaces.Ruled{Stored: h.store.Approvals, Of: h.Workspaces}.Rules(t.Context(), "w-"+string(id))
	if err != nil || len(rules) != 1 || rules[0].Rule != "Bash(rm *)" || rules[0].Behavior != "deny" {
		t.Errorf("%s: stored and shown %v, in force %+v, %v", id, h.get(t, id).Permissions, rules, err)
	}
}

// TestChangesOfANewWorkspace: what is changed before the server knows that a workspace was made is in force, and a
// workspace that is deleted before then stays away.
func TestChangesOfANewWorkspace(t *testing.T) {
	h := open(t)
	store := &between{Store: h.store.Workspaces}
	h.cfg.Store = store
	h.restart(t)
	store.after = func() {
		req := holdfast.UpdateWorkspace{WorkspaceSettings: holdfast.WorkspaceSettings{Permissions: deny}}
		if _, err := h.Update(t.Context(), "site", req); err != nil {
			t.Error(err)
		}
	}
	h.create(t, "site", holdfast.WorkspaceSettings{})
	h.denies(t, "site")
	store.after = func() {
		if _, err := h.Delete(t.Context(), "short", false, false); err != nil {
			t.Error(err)
		}
	}
	dir := h.dir(t, "own")
	for _, id := range []string{"short", "next"} {
		if _, err := h.Create(t.Context(), holdfast.CreateWorkspace{ID: id, Dir: dir}); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestANewWorkspaceOfTheSameName: a workspace that is made before the server knows that another one of its name is gone
// stays.
func TestANewWorkspaceOfTheSameName(t *testing.T) {
	h := open(t)
	store := &between{Store: h.store.Workspaces}
	h.cfg.Store = store
	h.restart(t)
	h.create(t, "site", holdfast.WorkspaceSettings{})
	r, err := h.store.Workspaces.Workspace(t.Context(), "site")
	if err != nil {
		t.Fatal(err)
	}
	r.Deleting = true
	if _, err := h.store.Workspaces.ChangeWorkspace(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	store.after = func() { h.create(t, "site", holdfast.WorkspaceSettings{Permissions: deny}) }
	if _, err := h.Delete(t.Context(), "site", false, false); err != nil {
		t.Fatal(err)
	}
	h.denies(t, "site")
}

// TestDeletedWorkspacesStayAway: a workspace that is deleted during a change is not known afterwards: its directory can
// have a new one. So it is if a new workspace has its name.
func TestDeletedWorkspacesStayAway(t *testing.T) {
	for _, again := range []bool{false, true} {
		h := open(t)
		one, two := h.dir(t, "one"), h.dir(t, "two")
		if _, err := h.Create(t.Context(), holdfast.CreateWorkspace{ID: "site", Dir: one}); err != nil {
			t.Fatal(err)
		}
		h.retitled(t, "site", func() {
			if _, err := h.Delete(t.Context(), "site", false, false); err != nil {
				t.Error(err)
			}
			if again {
				if _, err := h.Create(t.Context(), holdfast.CreateWorkspace{ID: "site", Dir: two}); err != nil {
					t.Error(err)
				}
			}
		})
		if _, err := h.Create(t.Context(), holdfast.CreateWorkspace{ID: "next", Dir: one}); err != nil {
			t.Errorf("again %t: the directory: %v", again, err)
		}
		if again {
			if ws, err := h.For(t.Context(), "", two, ""); err != nil || ws.ID != "site" {
				t.Errorf("the new workspace: %+v, %v", ws, err)
			}
		}
	}
}
