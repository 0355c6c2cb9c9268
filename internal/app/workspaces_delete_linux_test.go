package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
)

// TestWSR113_DeletedWorkspace: sessions of a deleted workspace stay and go on in a copy of their newest
// checkpoint; its files go
// to the trash, and a workspace of the same name begins empty (WS-R102, WS-R110, WS-R113, WS-R114).
//
// WS-R26, WS-R115.
func TestWSR113_DeletedWorkspace(t *testing.T) {
	cfg := settings(t, "mem")
	c, stop := serve(t, cfg)
	in := func(c *client.Client) holdfast.Session {
		t.Helper()
		ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Workspace: "site"}, "")
		if err != nil {
			t.Fatal(err)
		}
		return ses
	}
	if _, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{ID: "site"}); err != nil {
		t.Fatal(err)
	}
	one, two := in(c), in(c)
	turn(t, c, one.ID, `<script>[{"tool":"Write","input":{"file_path":"a.txt","content":"hello\n"}},{"say":"done"}]</script>`)
	turn(t, c, two.ID, inBash(`cat a.txt`))
	if got := outcome(t, c, two.ID).Content; !strings.Contains(got, "hello") {
		t.Errorf("the second session read %q", got)
	}
	if _, err := c.Send(t.Context(), one.ID, holdfast.SendMessage{Text: inBash("sleep 600")}); err != nil {
		t.Fatal(err)
	}
	_, err := c.DeleteWorkspace(t.Context(), "site", false, false)
	if !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(err.Error(), "1 active session") {
		t.Errorf("while a turn runs: %v, want a conflict with the count", err)
	}
	plan, err := c.DeleteWorkspace(t.Context(), "site", true, true)
	if err != nil || len(plan.Sessions) != 2 || plan.Running != 1 || !plan.DryRun || plan.Files != "trashed" {
		t.Errorf("plan %+v, %v", plan, err)
	}
	if _, err := c.DeleteWorkspace(t.Context(), "site", true, false); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Workspace(t.Context(), "site"); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("after the deletion: %v", err)
	}
	tree := filepath.Join(cfg.Data, "workspaces")
	if b, err := os.ReadFile(filepath.Join(tree, ".trash", "site.1", "files", "a.txt")); err != nil || string(b) != "hello\n" {
		t.Errorf("in the trash: %q, %v", b, err)
	}
	if _, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{ID: "site"}); err != nil {
		t.Fatal(err)
	}
	end := turn(t, c, one.ID, "What do you know?")
	if !strings.HasPrefix(end.Result, "You have sent 3 messages.") {
		t.Errorf("memory: %q", end.Result)
	}
	turn(t, c, one.ID, inBash(`cat a.txt; echo own > a.txt`))
	if got := outcome(t, c, one.ID).Content; !strings.Contains(got, "hello") {
		t.Errorf("the session has %q, not the files of its newest checkpoint", got)
	}
	three := in(c)
	turn(t, c, three.ID, inBash(`ls -A; touch b.txt`))
	if got := outcome(t, c, three.ID).Content; strings.Contains(got, "a.txt") {
		t.Errorf("the new workspace has %q", got)
	}
	stop()
	beginDeletion(t, cfg, "site")
	c, _ = serve(t, cfg)
	if list, err := c.Workspaces(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("after a start that found a deletion: %v, %v", list, err)
	}
	if ses, err := c.Session(t.Context(), three.ID); err != nil || ses.Workspace != "" {
		t.Errorf("its session: %+v, %v", ses, err)
	}
}

// TestDeletionInterruptedAtAHome: the server ends after it removed a session's home, in part or whole, and before the session
// left its workspace. The next one completes the deletion; the session has its home and the newest files of the workspace.
func TestDeletionInterruptedAtAHome(t *testing.T) {
	cfg := settings(t, "mem")
	c, stop := serve(t, cfg)
	if _, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{ID: "site"}); err != nil {
		t.Fatal(err)
	}
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Workspace: "site"}, "")
	if err != nil {
		t.Fatal(err)
	}
	turn(t, c, ses.ID, inBash("echo one > a.txt"))
	own := filepath.Join(cfg.Data, "sessions", string(ses.ID))
	write(t, filepath.Join(own, "home", "notes"), "mine")
	turn(t, c, ses.ID, inBash("echo two > a.txt"))
	stop()
	beginDeletion(t, cfg, "site")
	if err := os.Rename(own, own+rooted.Aside); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(own+rooted.Aside, "home", "notes")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(cfg.Data, "workspaces", "site", "files", "a.txt"), "three")
	c, _ = serve(t, cfg)
	if now, err := c.Session(t.Context(), ses.ID); err != nil || now.Workspace != "" {
		t.Fatalf("its session: %+v, %v", now, err)
	}
	turn(t, c, ses.ID, inBash("cat a.txt"))
	if got := outcome(t, c, ses.ID).Content; !strings.Contains(got, "three") {
		t.Errorf("the workspace has %q", got)
	}
	if notes, err := os.ReadFile(filepath.Join(own, "home", "notes")); err != nil || string(notes) != "mine" {
		t.Errorf("the home has %q, %v", notes, err)
	}
	if _, err := os.Lstat(own + rooted.Aside); !os.IsNotExist(err) {
		t.Errorf("what the former server did not remove is there: %v", err)
	}
}

// TestStartWithADeletionThatFails: a workspace that cannot be deleted keeps no server from starting.
func TestStartWithADeletionThatFails(t *testing.T) {
	cfg := settings(t, "mem")
	c, stop := serve(t, cfg)
	if _, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{ID: "site"}); err != nil {
		t.Fatal(err)
	}
	stop()
	beginDeletion(t, cfg, "site")
	trash := filepath.Join(cfg.Data, "workspaces", ".trash")
	write(t, trash, "no directory")
	c, stop = serve(t, cfg)
	if list, err := c.Workspaces(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := c.CreateSession(t.Context(), holdfast.CreateSession{Workspace: "site"}, ""); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("a session for it: %v", err)
	}
	stop()
	if err := os.Remove(trash); err != nil {
		t.Fatal(err)
	}
	c, _ = serve(t, cfg)
	if list, err := c.Workspaces(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("after the cause is gone: %v, %v", list, err)
	}
}

// beginDeletion leaves a workspace as a server does that ends right after the deletion began.
func beginDeletion(t *testing.T, cfg config.Config, id holdfast.Slug) {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(cfg.Data, "holdfast.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	r, err := store.Workspaces.Workspace(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	r.Deleting = true
	if _, err := store.Workspaces.ChangeWorkspace(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}
