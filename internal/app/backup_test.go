package app_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/checks"
	"github.com/holdfast-run/holdfast/internal/config"
)

// restored backs up a server and restores the backup into a new data directory, whose settings it returns.
func restored(t *testing.T, c *client.Client) (config.Config, app.Restored) {
	t.Helper()
	var archive bytes.Buffer
	r, err := c.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = archive.ReadFrom(r)
	if err = errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	cfg := settings(t, "mem")
	cfg.Data = filepath.Join(t.TempDir(), "restored")
	got, err := app.Restore(t.Context(), cfg, &archive, app.RestoreOptions{NewKeys: true})
	if err != nil {
		t.Fatal(err)
	}
	return cfg, got
}

// TestBackupHasWholeAgents: a backup has all files of each version of an agent, those in hidden directories included.
// If the files of a version are damaged, its backup is restored all the same, and doctor --verify names the version.
func TestBackupHasWholeAgents(t *testing.T) {
	server := settings(t, "mem")
	c, _ := serve(t, server)
	skill := ".claude/skills/a/SKILL.md"
	d, err := c.DeployAgent(t.Context(), "pilot", tarOf(
		t, entry{name: "CLAUDE.md", data: "Fly."}, entry{name: skill, data: "---\nname: a\ndescription: d\n---\nBody"},
	))
	if err != nil {
		t.Fatal(err)
	}
	version := strings.TrimPrefix(string(d.Agent.VersionID), "sha256:")
	bad := func(list []checks.Check) (out []checks.Check) {
		for _, c := range list {
			if !c.OK {
				out = append(out, c)
			}
		}
		return out
	}
	cfg, got := restored(t, c)
	if found, err := app.Verify(t.Context(), cfg, nil); err != nil || len(bad(got.Checks))+len(bad(found.Checks)) > 0 {
		t.Errorf("%+v, %+v, %v", bad(got.Checks), bad(found.Checks), err)
	}
	at := filepath.Join("agents", version, "files", skill)
	if got := read(t, filepath.Join(cfg.Data, at)); !strings.HasSuffix(got, "Body") {
		t.Errorf("the skill is %q", got)
	}
	if err := os.Remove(filepath.Join(server.Data, at)); err != nil {
		t.Fatal(err)
	}
	cfg, got = restored(t, c)
	found, err := app.Verify(t.Context(), cfg, nil)
	if err != nil || found.OK {
		t.Errorf("%+v, %v", found, err)
	}
	for _, list := range [][]checks.Check{got.Checks, found.Checks} {
		if !slices.ContainsFunc(bad(list), func(c checks.Check) bool {
			return c.Name == "agents" && strings.Contains(c.Detail, skill) && strings.Contains(c.Detail, version) && strings.Contains(c.Fix, "deploy the agent again")
		}) {
			t.Errorf("%+v", bad(list))
		}
	}
}
