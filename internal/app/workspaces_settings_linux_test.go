package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/pool"
)

// sizeOfTmp returns how many bytes fit into the /tmp of a session's box, which is one of its limits.
func sizeOfTmp(t *testing.T, c *client.Client, id holdfast.SessionID) (bytes int64) {
	t.Helper()
	turn(t, c, id, inBash(`stat -f -c '%S %b' /tmp`))
	var size, blocks int64
	got := outcome(t, c, id).Content
	if n, _ := fmt.Sscan(got, &size, &blocks); n != 2 {
		t.Fatalf("stat says %q", got)
	}
	return size * blocks
}

// TestWSR27_LimitsAndRulesInTheBox: the box of a workspace has the workspace's limits, and the workspace's rules hold in
// each of its sessions, whatever their mode; a rule that is added holds from the next call.
func TestWSR27_LimitsAndRulesInTheBox(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	_, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{ID: "site", WorkspaceSettings: holdfast.WorkspaceSettings{
		Limits: map[string]string{"tmp": "8MiB"}, Permissions: map[string][]string{"deny": {"Bash(touch *)"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Workspace: "site", Mode: string(holdfast.ModeBypassPermissions)}, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := sizeOfTmp(t, c, ses.ID); got != 8<<20 {
			t.Errorf("session %d: /tmp has %d bytes", i, got)
		}
		denied := func() int {
			return len(logged[holdfast.ToolDecision](t, c, ses.ID, holdfast.EventToolDenied))
		}
		turn(t, c, ses.ID, inBash(`touch a`))
		if denied() != 1 {
			t.Errorf("session %d: a call that the workspace denies ran", i)
		}
		for n, rules := range [][]string{{"Bash(mkdir *)", "Bash(touch *)"}, {"Bash(touch *)"}} {
			if _, err := c.UpdateWorkspace(t.Context(), "site", holdfast.UpdateWorkspace{WorkspaceSettings: holdfast.WorkspaceSettings{
				Permissions: map[string][]string{"deny": rules},
			}}); err != nil {
				t.Fatal(err)
			}
			turn(t, c, ses.ID, inBash(fmt.Sprintf("mkdir d%d%d", i, n)))
			if denied() != 2 {
				t.Errorf("session %d, rules %q: %d calls were denied", i, rules, denied())
			}
		}
	}
}

// TestWSR27_EnvironmentInTheBox: the tools of a new session have the environment of its workspace, and its own values first;
// the log and the audit log have no value.
func TestWSR27_EnvironmentInTheBox(t *testing.T) {
	cfg := settings(t, "local")
	c, stop := serve(t, cfg)
	_, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{ID: "site", WorkspaceSettings: holdfast.WorkspaceSettings{
		Env: map[string]string{"TOKEN": canary, "BOTH": "site's"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Workspace: "site", Mode: string(holdfast.ModeBypassPermissions), Env: map[string]string{"BOTH": "mine"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	turn(t, c, ses.ID, inBash(`printf %s "$TOKEN" | wc -c; echo "$BOTH"`))
	if got, want := strings.Fields(outcome(t, c, ses.ID).Content), []string{fmt.Sprint(len(canary)), "mine"}; !slices.Equal(got, want) {
		t.Errorf("in the box: %q, want %q", got, want)
	}
	stop()
	files, err := filepath.Glob(filepath.Join(cfg.Data, "holdfast.db*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if b, err := os.ReadFile(name); err != nil || strings.Contains(string(b), canary) {
			t.Errorf("%s has a value, or %v", name, err)
		}
	}
}

// twoIn makes the workspace site, with two sessions in it.
func twoIn(t *testing.T, c *client.Client, settings holdfast.WorkspaceSettings) (ids [2]holdfast.SessionID) {
	t.Helper()
	if _, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{ID: "site", WorkspaceSettings: settings}); err != nil {
		t.Fatal(err)
	}
	for i := range ids {
		ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Workspace: "site", Mode: string(holdfast.ModeBypassPermissions)}, "")
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = ses.ID
	}
	return ids
}

// TestWSP12_LimitsReachAnIdleBox: the shared box of a workspace gets new limits only when no session has a process in it.
func TestWSP12_LimitsReachAnIdleBox(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	limit := holdfast.WorkspaceSettings{Limits: map[string]string{"tmp": "8MiB"}}
	ids := twoIn(t, c, limit)
	// A process of a sibling that outlives its turn.
	turn(t, c, ids[0], inBash(`(while [ ! -f go ]; do sleep 0.1; done; touch gone) >/dev/null 2>&1 &`))
	limit.Limits["tmp"] = "16MiB"
	if _, err := c.UpdateWorkspace(t.Context(), "site", holdfast.UpdateWorkspace{WorkspaceSettings: limit}); err != nil {
		t.Fatal(err)
	}
	if got := sizeOfTmp(t, c, ids[1]); got != 8<<20 {
		t.Errorf("beside a process of a sibling /tmp has %d bytes", got)
	}
	turn(t, c, ids[1], inBash(`touch go; while [ ! -f gone ]; do sleep 0.1; done; sleep 0.2`))
	for _, id := range ids {
		if got := sizeOfTmp(t, c, id); got != 16<<20 {
			t.Errorf("when the box is idle /tmp has %d bytes", got)
		}
	}
	ended := logged[holdfast.BoxEnded](t, c, ids[1], holdfast.EventBoxStopped)
	if len(ended) != 1 || ended[0].Reason != pool.SpecChanged {
		t.Errorf("stops of the box: %+v", ended)
	}
}

// TestWSR27_DiskLimitAfterAPurge: the disk limit of a workspace holds when the first of its sessions is gone.
func TestWSR27_DiskLimitAfterAPurge(t *testing.T) {
	c, _, _ := serveWith(t, settings(t, "local"), pollFast)
	limit := holdfast.WorkspaceSettings{Limits: map[string]string{"disk": "40MiB"}}
	ids := twoIn(t, c, limit)
	for _, id := range ids {
		turn(t, c, id, inBash("echo here"))
	}
	if err := c.DeleteSession(t.Context(), ids[0], holdfast.EndSession{Purge: true}); err != nil {
		t.Fatal(err)
	}
	turn(t, c, ids[1], inBash("head -c 104857600 /dev/zero > big; sleep 20"))
	ended := logged[holdfast.BoxEnded](t, c, ids[1], holdfast.EventBoxStopped)
	if len(ended) != 1 || !strings.HasPrefix(ended[0].Reason, "disk: ") {
		t.Errorf("stops of the box: %+v", ended)
	}
}
