package app_test

import (
	"io"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

// readAt returns the content of a file as it is now, or as it was at a checkpoint.
func readAt(t *testing.T, c *client.Client, id holdfast.SessionID, at holdfast.CheckpointID, name string) (string, error) {
	t.Helper()
	r, err := c.ReadFileAt(t.Context(), id, at, name)
	if err != nil {
		return "", err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return string(data), err
}

// newest returns the id of the newest checkpoint.
func newest(t *testing.T, c *client.Client, id holdfast.SessionID) holdfast.CheckpointID {
	t.Helper()
	page, err := c.Checkpoints(t.Context(), id, "", 1)
	if err != nil || len(page.Checkpoints) != 1 {
		t.Fatalf("%+v %v", page, err)
	}
	return page.Checkpoints[0].ID
}

// sameAsLive checks that files of a checkpoint, which are those of the box, can be read as in the box.
func sameAsLive(t *testing.T, c *client.Client, id holdfast.SessionID, at holdfast.CheckpointID, names ...string) {
	t.Helper()
	for _, name := range names {
		live, err := readAt(t, c, id, "", name)
		stored, serr := readAt(t, c, id, at, name)
		if live != stored || holdfast.KindOf(err) != holdfast.KindOf(serr) || strings.Contains(stored, hidden) {
			t.Errorf("%s: in the box %q %v, in the checkpoint %q %v", name, live, err, stored, serr)
		}
	}
}

// TestHZ25_CheckpointsShowWhatMayBeRead: of a session with a list of allowed paths, checkpoints show these alone.
func TestHZ25_CheckpointsShowWhatMayBeRead(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	if _, err := c.DeployAgent(t.Context(), "reader", tarOf(
		t, entry{name: "CLAUDE.md", data: "x"}, entry{name: "docs/text", data: canary}, entry{name: "docs/in/text", data: canary}, entry{name: "other/text", data: hidden}, entry{name: "text", data: hidden},
		entry{name: "holdfast.yaml", data: "permissions: {sandbox: {allowedReadPaths: [/workspace/docs]}}\n"},
	)); err != nil {
		t.Fatal(err)
	}
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Agent: "reader", Mode: string(holdfast.ModeBypassPermissions)}, "")
	if err != nil {
		t.Fatal(err)
	}
	turn(t, c, ses.ID, script(bashCall("cd docs; printf 'ln -s ../oth''er/text link; echo new > new' > g.sh; sh g.sh")))
	sameAsLive(t, c, ses.ID, newest(t, c, ses.ID), "docs/text", "docs/in/text", "docs/new", "docs/link", "docs/none", "docs", "other/text", "other", "text", "none", "holdfast.yaml")
	list, err := c.ListFilesAt(t.Context(), ses.ID, newest(t, c, ses.ID), "")
	if err != nil || len(list.Entries) != 1 || list.Entries[0].Path != "docs" {
		t.Errorf("%+v %v", list, err)
	}
}

// TestHZ25_CheckpointsHideWhatWallsHide: a file of a checkpoint can be read if the API can read it in the box, also
// by way of symlinks that the agent made; lists, diffs and restored directories do not have hidden files.
func TestHZ25_CheckpointsHideWhatWallsHide(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	id := keeper(t, c, "untrusted")
	turn(t, c, id, script(
		bashCall("ln -s vault v; ln -s .env e; ln -s /workspace/vault/key k; ln -s docs d; ln -s ../workspace/docs/text w; ln -s loop loop; ln -s /etc etc"),
		bashCall("mkdir more; ln -s ../aliased more/.env; echo "+hidden+" > aliased; echo new > docs/new"),
	))
	at := newest(t, c, id)
	// The next box has a wall for the new match of the pattern.
	if _, err := c.StopContainers(t.Context(), holdfast.StopContainers{All: true}); err != nil {
		t.Fatal(err)
	}
	sameAsLive(
		t, c, id, at, ".env", "app/.env", "vault/key", "vault/none", "v/key", "e", "k", "more/.env", "aliased", "docs/text", "d/text", "w",
		"docs/../docs/text", "vault/../docs/text", "none", "docs/text/x", "docs", "d", "CLAUDE.md", "loop", "~/none",
	)
	for _, dir := range []string{".", "vault", "app", "docs", "more", "v"} {
		_, err := c.ListFiles(t.Context(), id, dir)
		list, serr := c.ListFilesAt(t.Context(), id, at, dir)
		if holdfast.KindOf(err) != holdfast.KindOf(serr) {
			t.Errorf("list of %s: in the box %v, in the checkpoint %v", dir, err, serr)
		}
		for _, f := range list.Entries {
			if f.Path == ".env" || f.Path == "vault" || f.Path == "aliased" {
				t.Errorf("the list of %s has %+v", dir, f)
			}
		}
	}
	var patch strings.Builder
	notes, err := c.DiffCheckpoints(t.Context(), id, holdfast.CompareCheckpoints{To: at, Home: true}, &patch)
	if err != nil || strings.Contains(patch.String(), hidden) || !strings.Contains(patch.String(), "+new") || !strings.Contains(notes, "left out: 5 changes that the path rules") {
		t.Errorf("%v %q\n%s", err, notes, patch.String())
	}
	if _, _, err := c.RestoreFiles(t.Context(), id, holdfast.RestoreFiles{Path: "vault/key", At: at}); !holdfast.IsKind(err, holdfast.KindDenied) {
		t.Errorf("a hidden file is put back: %v", err)
	}
	run(t, c, id, "rm docs/new docs/text; echo x > docs/goal; ln -s goal docs/text")
	if sum, kept, err := c.RestoreFiles(t.Context(), id, holdfast.RestoreFiles{Path: "docs", At: at}); err != nil || sum.Files != 2 || kept != "" {
		t.Errorf("%+v %v", sum, err)
	}
	if _, out := run(t, c, id, "cat docs/text docs/new docs/goal; echo more >> docs/text && echo $?"); out != canary+"new\nx\n0\n" {
		t.Errorf("after a restore: %q", out)
	}
	if _, _, err := c.RestoreFiles(t.Context(), id, holdfast.RestoreFiles{Path: "CLAUDE.md", At: at}); err == nil {
		t.Error("a restore writes a read-only path")
	}
}
