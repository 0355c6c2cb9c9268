package app_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/config"
)

// forest makes a directory of a user, which is never root, with two directories in it: site, to work in, and notes.
func forest(t *testing.T) (tree, site string) {
	t.Helper()
	tree = filepath.Join(t.TempDir(), "forest")
	site = filepath.Join(tree, "projects", "site")
	for _, argv := range [][]string{
		{"mkdir", "-p", site, filepath.Join(tree, "notes")},
		{"sh", "-c", "echo plan > " + filepath.Join(tree, "notes/plan") + "; echo key > " + filepath.Join(site, "secret.env") + "; ln -s /etc/shadow " + filepath.Join(tree, "shadow")},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", argv, err, out)
		}
	}
	if os.Getuid() == 0 {
		if out, err := exec.Command("chown", "-hR", "1000:1001", tree).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return tree, site
}

// boxesOf lists the ids of the boxes that run.
func boxesOf(t *testing.T, c *client.Client) string {
	t.Helper()
	list, err := c.Containers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, b := range list {
		if b.State != holdfast.BoxStopped {
			ids = append(ids, string(b.ID))
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// mounted makes a workspace of a directory whose sessions may have the tree, and sessions with mount scopes.
func mounted(t *testing.T, c *client.Client, dir string, mounts ...string) (all []holdfast.Session) {
	t.Helper()
	wide := holdfast.MountTree
	if _, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{ID: "site", Dir: dir, WorkspaceSettings: holdfast.WorkspaceSettings{Mount: &wide}}); err != nil {
		t.Fatal(err)
	}
	for _, mount := range mounts {
		ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Workspace: "site", Mount: mount, Mode: string(holdfast.ModeBypassPermissions)}, "")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ses)
	}
	return all
}

// sees checks what a turn's command prints.
func sees(t *testing.T, c *client.Client, what string, ses holdfast.Session, command, want string) {
	t.Helper()
	turn(t, c, ses.ID, inBash(command+" 2>&1"))
	if got := outcome(t, c, ses.ID).Content; !strings.Contains(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestWSR28_MountScopes: of two sessions of a workspace one has the workspace alone, the other also the server's tree,
// which it reads and cannot write. Both work on the same files, each in the box of its scope.
func TestWSR28_MountScopes(t *testing.T) {
	cfg := settings(t, "local")
	tree, site := forest(t)
	cfg.Mounted.Tree = tree
	cfg.Permissions.Deny = []string{"Read(secret.env)"}
	c, _ := serve(t, cfg)
	wide := holdfast.MountTree
	ses := mounted(t, c, site, holdfast.MountWorkspace, "", wide)
	a, b, other := ses[0], ses[1], ses[2]
	if a.Mount != "" || b.Mount != wide || other.Mount != wide {
		t.Errorf("mounts %q, %q, %q", a.Mount, b.Mount, other.Mount)
	}
	has := func(what string, ses holdfast.Session, command, want string) {
		t.Helper()
		sees(t, c, what, ses, command, want)
	}
	has("the narrow scope", a, "cat /tree/notes/plan", "No such file")
	has("the narrow scope", a, "ls /workspace/../.. | tr '\\n' ' '; echo from-a > made", "workspace")
	has("the wide scope", b, "cat /tree/notes/plan made", "plan\nfrom-a")
	has("a link that leads out", b, "cat /tree/shadow", "No such file")
	for _, write := range []string{"echo x > /tree/notes/plan", "touch /tree/new", "rm /tree/notes/plan", "mv /tree/notes /tree/other", "chmod 777 /tree/notes", "echo x > /tree/projects/site/made"} {
		has(write, b, "{ "+write+"; }", "") // the host's files tell
	}
	has("the workspace in the tree, where no path rule is in force", b, "ls -A /tree/projects/site; cat /tree/projects/site/secret.env", "secret.env: Permission denied")
	has("a path rule", b, "cat secret.env", "ermission denied")
	has("the same files", b, "echo from-b > made; cat made", "from-b")
	has("the same files", a, "cat made", "from-b")
	has("another session of the scope", other, "cat /tree/notes/plan", "plan")
	if got := boxesOf(t, c); got != "t-site w-site" {
		t.Errorf("boxes %q", got)
	}
	if got, err := os.ReadFile(filepath.Join(tree, "notes/plan")); err != nil || string(got) != "plan\n" {
		t.Errorf("the file of the tree: %q, %v", got, err)
	}
	if names, err := os.ReadDir(tree); err != nil || len(names) != 3 {
		t.Errorf("the tree has %v, %v", names, err)
	}
	for what, req := range map[string]struct {
		holdfast.CreateSession
		kind holdfast.Kind
	}{
		"a session of its own": {holdfast.CreateSession{Mount: wide}, holdfast.KindConflict},
		"an unknown scope":     {holdfast.CreateSession{Workspace: "site", Mount: "tree"}, holdfast.KindInvalid},
	} {
		if _, err := c.CreateSession(t.Context(), req.CreateSession, ""); !holdfast.IsKind(err, req.kind) || holdfast.HintOf(err) == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	// What either session's turn changed is in its checkpoint, and nothing of the tree.
	for _, ses := range []holdfast.Session{a, b} {
		list, err := c.Checkpoints(t.Context(), ses.ID, "", 10)
		if err != nil || len(list.Checkpoints) == 0 {
			t.Errorf("checkpoints of %s: %+v, %v", ses.ID, list, err)
		}
	}
	fork, err := c.Fork(t.Context(), b.ID, holdfast.ForkSession{}, "")
	if err != nil || fork.Mount != "" {
		t.Errorf("a fork, whose files are its own: %+v, %v", fork, err)
	}
}

// TestWSR28_TheTreeOfTheNextServer: the box of the wide scope starts again if the server has another tree, and ends if it has
// none; its sessions are then refused, and those of the narrow scope go on. Without its workspace a session has no tree.
func TestWSR28_TheTreeOfTheNextServer(t *testing.T) {
	cfg := settings(t, "local")
	cfg.OnShutdown = config.ShutdownKeep
	_, site := forest(t) // in no tree, so that the boxes differ in nothing else
	cfg.Mounted.Tree, _ = forest(t)
	c, stop := serve(t, cfg)
	ses := mounted(t, c, site, holdfast.MountWorkspace, holdfast.MountTree)
	a, b := ses[0], ses[1]
	sees(t, c, "the first tree", b, "cat /tree/notes/plan", "plan")
	sees(t, c, "the narrow scope", a, "echo from-a > made", "")

	// The next server has another tree: the box starts again, although a process runs in it.
	sees(t, c, "a process", b, "setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo started", "started")
	stop()
	next, _ := forest(t)
	if err := os.WriteFile(filepath.Join(next, "new"), []byte("of the new tree"), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg.Mounted.Tree = next
	c, stop = serve(t, cfg)
	sees(t, c, "another tree", b, "cat /tree/new", "of the new tree")
	stop()
	// A server without a tree ends the box and refuses its sessions.
	cfg.Mounted.Tree = ""
	c, stop = serve(t, cfg)
	if got := boxesOf(t, c); got != "w-site" {
		t.Errorf("boxes without a tree: %q", got)
	}
	if _, err := c.Exec(t.Context(), b.ID, holdfast.ExecRequest{Command: "true"}); !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(holdfast.HintOf(err), "tree_root") {
		t.Errorf("a session whose tree is gone: %v", err)
	}
	sees(t, c, "the narrow scope without a tree", a, "cat made", "from-a")
	stop()
	cfg.Mounted.Tree = next
	c, _ = serve(t, cfg)
	if _, err := c.DeleteWorkspace(t.Context(), "site", true, false); err != nil {
		t.Fatal(err)
	}
	if ses, err := c.Session(t.Context(), b.ID); err != nil || ses.Mount != "" || ses.Workspace != "" {
		t.Errorf("after the end of the workspace: %+v, %v", ses, err)
	}
	sees(t, c, "after the end of the workspace", b, "cat /tree/new", "No such file")
}

// TestCheckpointsOfTwoMountScopesAtOnce: turns of sessions in both boxes of a workspace end at the same time, round after round. No
// snapshot fails, the newest checkpoint of each session has the files of all, and a rewind of one never touches those of another.
func TestCheckpointsOfTwoMountScopesAtOnce(t *testing.T) {
	cfg := settings(t, "local")
	tree, site := forest(t)
	cfg.Mounted.Tree = tree
	c, _ := serve(t, cfg)
	ses := mounted(t, c, site, holdfast.MountWorkspace, holdfast.MountTree, "")
	target := make([]holdfast.Checkpoint, len(ses))
	const rounds = 12
	for n := range rounds {
		var turns []*talk
		for i, s := range ses {
			turns = append(turns, startTurn(t, c, s.ID, inBash(fmt.Sprintf("echo %d > of-%d; mkdir -p d-%d; echo %d > d-%d/f-%d", n, i, i, n, i, n))))
		}
		for i, k := range turns {
			if typ, end := k.end(); typ != holdfast.EventTurnCompleted || len(end.Denials) > 0 {
				t.Fatalf("session %d, round %d: %s %+v", i, n, typ, end)
			}
		}
		for i, s := range ses {
			if n == 0 {
				turn(t, c, s.ID, inBash("true"))
				target[i] = newestCheckpoint(t, c, s.ID)
			}
		}
	}
	for i, s := range ses {
		turn(t, c, s.ID, inBash("true")) // before it, the server looks for what the others changed
		newest := newestCheckpoint(t, c, s.ID)
		for j := range ses {
			for _, name := range []string{fmt.Sprintf("of-%d", j), fmt.Sprintf("d-%d/f-%d", j, rounds-1)} {
				r, err := c.ReadFileAt(t.Context(), s.ID, newest.ID, name)
				if err != nil {
					t.Fatalf("session %d, %s: %v", i, name, err)
				}
				b, err := io.ReadAll(r)
				if r.Close(); err != nil || string(b) != fmt.Sprintln(rounds-1) {
					t.Errorf("session %d has %s as %q, %v", i, name, b, err)
				}
			}
		}
		if bad := logged[holdfast.Failure](t, c, s.ID, holdfast.EventSnapshotFailed); len(bad) > 0 {
			t.Errorf("session %d: %+v", i, bad)
		}
		_, err := c.Rewind(t.Context(), s.ID, holdfast.RewindSession{To: target[i].ID, Files: "restore"})
		if another := map[bool]string{true: `"d-1/f-`, false: `"d-0/f-`}[i == 0]; !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(err.Error(), another) {
			t.Errorf("session %d goes back over the others' files: %v", i, err)
		}
	}
}
