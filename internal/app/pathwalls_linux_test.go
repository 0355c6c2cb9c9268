package app_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

// hidden is in every file of the keeper that may not be read.
const hidden = "hidden-" + canary

// keeper deploys an agent with files and path rules, and makes a session for it.
func keeper(t *testing.T, c *client.Client, trust string) holdfast.SessionID {
	t.Helper()
	if _, err := c.DeployAgent(t.Context(), "keeper", tarOf(
		t, entry{name: "CLAUDE.md", data: "x"}, entry{name: ".env", data: hidden}, entry{name: "app/.env", data: hidden}, entry{name: "vault/key", data: hidden},
		entry{name: "docs/text", data: canary}, entry{name: "read.sh", data: "cat \"$@\""},
		entry{name: "holdfast.yaml", data: "permissions:\n  deny: ['Read(**/.env)', 'Edit(/workspace/CLAUDE.md)']\n  sandbox: {deniedPaths: [/workspace/vault], deniedWritePaths: [/workspace/app]}\n"},
	)); err != nil {
		t.Fatal(err)
	}
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Agent: "keeper", Trust: trust, Mode: string(holdfast.ModeBypassPermissions)}, "")
	if err != nil {
		t.Fatal(err)
	}
	return ses.ID
}

// TestHZ25_PathRulesAreWalls: paths in the rules of an agent's folder are out of reach
// for commands whose text does not show them, for file tools and for the user's own
// commands; box.started lists them (HZ-25).
func TestHZ25_PathRulesAreWalls(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	id := keeper(t, c, "untrusted")
	turn(t, c, id, script(
		bashCall("printf 'grep -rh canary . || true' > g.sh; sh g.sh"), bashCall("printf 'tar cf - . | grep -a canary || true' > t.sh; sh t.sh"),
		bashCall("printf 'cat v*/key a*/.en*' > x.sh; sh x.sh || true"), bashCall("sh read.sh docs/text"), bashCall("printf 'echo x >> CLAUDE.md; echo x > app/n' > y.sh; sh y.sh; echo end"),
	))
	results := logged[holdfast.ToolFinished](t, c, id, holdfast.EventToolFinished)
	for i, r := range results {
		if strings.Contains(r.Content, hidden) {
			t.Errorf("%d: %+v", i, r)
		}
	}
	if len(results) != 5 || results[3].Content != canary {
		t.Errorf("what is allowed: %+v", results)
	}
	if _, out := run(t, c, id, "cat .env app/.env vault/key"); strings.Contains(out, hidden) {
		t.Errorf("the user's own command shows %q", out)
	}
	if _, out := run(t, c, id, "cat CLAUDE.md; ls app"); out != "x" {
		t.Errorf("what may not be written: %q", out)
	}
	started := logged[holdfast.BoxStarted](t, c, id, holdfast.EventBoxStarted)
	if len(started) != 1 {
		t.Fatalf("%+v", started)
	}
	for _, want := range []string{`wall: masked "/workspace/.env"`, `wall: masked "/workspace/app/.env"`, `wall: masked "/workspace/vault"`, `wall: read-only "/workspace/app"`, `wall: read-only "/workspace/CLAUDE.md"`} {
		if !slices.Contains(started[0].InForce, want) {
			t.Errorf("%s is not in force: %q", want, started[0].InForce)
		}
	}
}

// TestHZ25_StricterRulesRestartTheBox: stricter rules are in force once the processes
// of the box run with them: running processes keep the box, the next call finds it
// started again, and a process that stood in the denied tree is gone.
func TestHZ25_StricterRulesRestartTheBox(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	id := keeper(t, c, "untrusted")
	if _, out := run(t, c, id, "cat docs/text; cd docs; (while :; do cat text >> /workspace/copied 2>/dev/null; sleep 0.01; done) >/dev/null 2>&1 &"); out != canary {
		t.Fatal(out)
	}
	const stricter = "permissions: {sandbox: {deniedPaths: [/workspace/docs]}}\n"
	running, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = c.Exec(running, id, holdfast.ExecRequest{Command: "touch began; sleep 60", TimeoutMS: 60_000})
	}()
	for {
		if _, out := run(t, c, id, "ls began 2>/dev/null"); out != "" {
			break
		}
	}
	put(t, c, id, "holdfast.yaml", stricter, 0)
	_, err := c.Exec(t.Context(), id, holdfast.ExecRequest{Command: "cat docs/text", TimeoutMS: 10_000})
	if !holdfast.IsKind(err, holdfast.KindBusy) || holdfast.HintOf(err) == "" {
		t.Errorf("with older walls while a command runs: %v", err)
	}
	cancel()
	<-ended
	var out string
	for {
		res, err := c.Exec(t.Context(), id, holdfast.ExecRequest{Command: "cat docs/text 2>&1; rm -f copied; ls /proc | grep -c '^[0-9]'", TimeoutMS: 10_000})
		if holdfast.IsKind(err, holdfast.KindBusy) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		out = string(res.Stdout)
		break
	}
	if strings.Contains(out, canary) || !strings.Contains(out, "ermission denied") {
		t.Errorf("after the change: %q", out)
	}
	stopped := logged[holdfast.BoxEnded](t, c, id, holdfast.EventBoxStopped)
	if len(stopped) != 1 || !strings.Contains(stopped[0].Reason, "path rules changed") || len(stopped[0].Processes) == 0 {
		t.Errorf("stopped: %+v", stopped)
	}
	if _, out := run(t, c, id, "sleep 0.1; cat copied 2>/dev/null"); out != "" {
		t.Errorf("a process of before goes on reading: %q", out)
	}
}

// TestHZ25_RulesChangedInATurn: if a turn's own call makes the rules stricter, its next
// call runs in a box with their walls.
func TestHZ25_RulesChangedInATurn(t *testing.T) {
	for _, driver := range []string{"mem", "local"} {
		t.Run(driver, func(t *testing.T) {
			c, _ := serve(t, settings(t, driver))
			id := newSession(t, c, "untrusted")
			end := turn(t, c, id, script(
				bashCall("mkdir docs; echo "+canary+" > docs/text; cat docs/text"),
				`{"tool":"Write","input":{"file_path":"holdfast.yaml","content":"permissions: {deny: ['Read(/workspace/docs/**)']}\n"}}`,
				bashCall("printf 'cat d*/text' > x.sh; sh x.sh; echo end"),
			))
			results := logged[holdfast.ToolFinished](t, c, id, holdfast.EventToolFinished)
			if len(results) != 3 || end.Result != "done" {
				t.Fatalf("%+v %+v", end, results)
			}
			if n := len(logged[holdfast.BoxStarted](t, c, id, holdfast.EventBoxStarted)); n != 2 {
				t.Errorf("the box was started %d times", n)
			}
			if driver == "local" && strings.Contains(results[2].Content, canary) {
				t.Errorf("%+v", results[2])
			}
		})
	}
}

// TestHZ25_WallsOutliveTheServer: a box that the next server adopts has the walls that
// it was started with; if the rules ask for others it starts again.
func TestHZ25_WallsOutliveTheServer(t *testing.T) {
	cfg := settings(t, "local")
	cfg.OnShutdown = "keep"
	c, stop := serve(t, cfg)
	id := keeper(t, c, "untrusted")
	if _, out := run(t, c, id, "cat .env docs/text"); out != canary+"cat: .env: Permission denied\n" {
		t.Fatalf("%q", out)
	}
	stop()
	c, stop = serve(t, cfg)
	if _, out := run(t, c, id, "cat .env docs/text"); out != canary+"cat: .env: Permission denied\n" {
		t.Errorf("adopted: %q", out)
	}
	if n := len(logged[holdfast.BoxStarted](t, c, id, holdfast.EventBoxStarted)); n != 1 {
		t.Errorf("started %d times", n)
	}
	stop()
	sandboxFile(t, &cfg, `{"deniedPaths": ["/workspace/docs"]}`)
	c, _ = serve(t, cfg)
	if _, out := run(t, c, id, "cat docs/text"); strings.Contains(out, canary) {
		t.Errorf("with a stricter server: %q", out)
	}
}

// TestHZ25_TrustedSessionsHaveNoWalls: a notice says that path rules are only checked
// by text.
func TestHZ25_TrustedSessionsHaveNoWalls(t *testing.T) {
	cfg := settings(t, "local")
	c, _ := serve(t, cfg)
	id := keeper(t, c, "trusted")
	for _, n := range logged[holdfast.Notice](t, c, id, holdfast.EventNotice) {
		if n.Code == "walls.none" {
			return
		}
	}
	t.Error("nothing is said")
}
