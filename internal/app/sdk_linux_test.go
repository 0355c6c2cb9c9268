package app_test

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/app/apptest"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// The rows of docs/conformance/agent-sdk.md that need a whole server.

// sandboxFile writes sandbox settings and makes them the server's.
func sandboxFile(t *testing.T, cfg *config.Config, settings string) {
	t.Helper()
	cfg.Permissions.Sandbox = filepath.Join(t.TempDir(), "sandbox.json")
	if err := os.WriteFile(cfg.Permissions.Sandbox, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
}

// script is a turn of the scripted model that makes these calls in a row.
func script(calls ...string) string {
	return "<script>[" + strings.Join(calls, ",") + `,{"say":"done"}]</script>`
}

// TestSDKP21_DenialsAreToldAtTheEnd: the end of a turn names the calls that were not
// allowed, the model reads why (SDK-P14), nothing of them happened in the box (SDK-L12),
// and the server's log has each denial, unless the settings leave it out (SDK-K16,
// SDK-B10).
func TestSDKP21_DenialsAreToldAtTheEnd(t *testing.T) {
	cfg := settings(t, "local")
	sandboxFile(t, &cfg, `{"deniedCommands": ["tee", "dd"], "deniedPaths": ["/workspace/secret"], "ignoreViolations": {"command": ["dd"]}}`)
	var log logbook
	c, _, stop := serveLogged(t, cfg, &log)
	id := newSession(t, c, "untrusted")
	end := turn(t, c, id, script(
		bashCall("touch made; echo x | tee denied"),
		bashCall("echo y > allowed"),
		bashCall("dd if=/dev/null of=quiet"),
		`{"tool":"Read","input":{"file_path":"/workspace/secret/key"}}`,
	))
	if len(end.Denials) != 3 {
		t.Fatalf("%+v", end.Denials)
	}
	for i, want := range []struct{ tool, input string }{{"Bash", "tee denied"}, {"Bash", "of=quiet"}, {"Read", "/workspace/secret/key"}} {
		if d := end.Denials[i]; d.Tool != want.tool || d.ToolUseID == "" || !strings.Contains(string(d.Input), want.input) {
			t.Errorf("%d: %+v, want %+v", i, d, want)
		}
	}
	if _, out := run(t, c, id, "ls *ed denied quiet made 2>/dev/null"); out != "allowed\n" {
		t.Errorf("in the box there are %q", out)
	}
	for i, d := range logged[holdfast.ToolDecision](t, c, id, holdfast.EventToolDenied) {
		if d.Reason == "" || d.By != "sandbox" {
			t.Errorf("%d: %+v", i, d)
		}
	}
	stop()
	said := log.String()
	if !strings.Contains(said, `msg="a tool was denied"`) || !strings.Contains(said, "deniedCommands") || !strings.Contains(said, "deniedPaths") {
		t.Errorf("the log does not tell of the denials: %s", said)
	}
	for _, want := range []string{"tool=Bash", "tee denied", "tool=Read", "/workspace/secret/key"} { // SDK-K16: the type, the value
		if !strings.Contains(said, want) {
			t.Errorf("the log names no %s: %s", want, said)
		}
	}
	for l := range strings.Lines(said) {
		if strings.Contains(l, "a tool was denied") && (!strings.Contains(l, "level=INFO") || !strings.Contains(l, "reason=")) {
			t.Errorf("a denial is logged as %s", l)
		}
	}
	if n := strings.Count(said, "a tool was denied"); n != 2 {
		t.Errorf("%d denials in the log, want 2: %s", n, said)
	}
}

// TestSDKB16_ServerRefusesWhatNothingCarriesOut: settings that promise what is not
// there keep a server from starting, those that mean nothing are said (SDK-B14,
// SDK-B15, SDK-B17).
func TestSDKB16_ServerRefusesWhatNothingCarriesOut(t *testing.T) {
	cfg := settings(t, "mem")
	sandboxFile(t, &cfg, `{"network": {"httpProxyPort": 3128}}`)
	if err := app.Run(t.Context(), cfg, app.Options{Version: "test", Drivers: apptest.Drivers()}); !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), "httpProxyPort") {
		t.Errorf("%v", err)
	}
	sandboxFile(t, &cfg, `{"network": {"allowLocalBinding": true, "allowAllUnixSockets": true}, "ripgrep": {"command": "rg"}}`)
	var log logbook
	_, _, stop := serveLogged(t, cfg, &log)
	stop()
	for _, field := range []string{"network.allowLocalBinding", "network.allowAllUnixSockets", "ripgrep"} {
		if !strings.Contains(log.String(), field+" has no effect") {
			t.Errorf("%s is not said: %s", field, log.String())
		}
	}
}

// TestSDKK14_ToolsAreHeldWherePathsLead: in a real box, links that the agent made
// itself lead no file tool into what the settings deny, and searching shows nothing of
// it (SDK-K15).
func TestSDKK14_ToolsAreHeldWherePathsLead(t *testing.T) {
	cfg := settings(t, "local")
	sandboxFile(t, &cfg, `{"deniedPaths": ["/workspace/secret"], "allowedReadPaths": ["/workspace"], "allowedWritePaths": ["/workspace"]}`)
	c, _ := serve(t, cfg)
	if _, err := c.DeployAgent(t.Context(), "keeper", tarOf(t, entry{name: "CLAUDE.md", data: "x"}, entry{name: "secret/key", data: canary})); err != nil {
		t.Fatal(err)
	}
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Agent: "keeper", Mode: string(holdfast.ModeBypassPermissions)}, "")
	if err != nil {
		t.Fatal(err)
	}
	id := ses.ID
	if _, out := run(t, c, id, "mkdir open && ln -s secret link && ln -s ../secret/key open/file && ln -s /etc outside && echo fine > open/fine"); out != "" {
		t.Fatal(out)
	}
	calls := []string{
		`{"tool":"Read","input":{"file_path":"link/key"}}`,
		`{"tool":"Read","input":{"file_path":"open/file"}}`,
		`{"tool":"Read","input":{"file_path":"outside/passwd"}}`,
		`{"tool":"Write","input":{"file_path":"link/new","content":"x"}}`,
		`{"tool":"Edit","input":{"file_path":"open/file","old_string":"walls","new_string":"holes"}}`,
		`{"tool":"Grep","input":{"pattern":"canary","path":"link"}}`,
		`{"tool":"Glob","input":{"pattern":"*","path":"link"}}`,
		`{"tool":"LS","input":{"path":"link"}}`,
		`{"tool":"Grep","input":{"pattern":"canary|fine","output_mode":"content"}}`,
		`{"tool":"Glob","input":{"pattern":"**/*"}}`,
		`{"tool":"LS","input":{}}`,
	}
	turn(t, c, id, script(calls...))
	// The server sees the links of the box: it denies the first eight by itself.
	results := logged[holdfast.ToolFinished](t, c, id, holdfast.EventToolFinished)
	denied := logged[holdfast.ToolDecision](t, c, id, holdfast.EventToolDenied)
	if len(results) != 3 || len(denied) != 8 {
		t.Fatalf("%d results: %+v, %d denials: %+v", len(results), results, len(denied), denied)
	}
	for i, d := range denied {
		if d.By != "sandbox" {
			t.Errorf("%s: %+v", calls[i], d)
		}
	}
	for i, r := range results {
		if strings.Contains(r.Content, canary) || strings.Contains(r.Content, "secret/key") || r.IsError {
			t.Errorf("%s shows %q", calls[8+i], r.Content)
		}
	}
	if !strings.Contains(results[0].Content, "open/fine") || !strings.Contains(results[1].Content, "open/fine") || strings.Contains(results[2].Content, "secret/") {
		t.Errorf("what is allowed: %q, %q, %q", results[0].Content, results[1].Content, results[2].Content)
	}
	if kept, err := os.ReadFile(filepath.Join(cfg.Data, "sessions", string(id), "workspace", "secret", "key")); err != nil || string(kept) != canary {
		t.Errorf("the denied tree holds %q (%v)", kept, err)
	}
}

// TestSDKX2_AnyOneLayerStopsBash: a command is denied by a rule, by a hook and by the
// sandbox settings, each by itself; only where none of them does it runs in the box.
func TestSDKX2_AnyOneLayerStopsBash(t *testing.T) {
	for layers := range 8 {
		rule, hooked, sandbox := layers&1 != 0, layers&2 != 0, layers&4 != 0
		t.Run(fmt.Sprintf("rule %v, hook %v, sandbox %v", rule, hooked, sandbox), func(t *testing.T) {
			cfg := settings(t, "local")
			want := ""
			if sandbox {
				sandboxFile(t, &cfg, `{"deniedCommands": ["touch"]}`)
				want = "sandbox"
			}
			if rule {
				cfg.Permissions.Deny = []string{"Bash(touch *)"}
				want = "deny rule"
			}
			if hooked {
				cfg.Hooks = config.Hooks{hook.PreToolUse: {{Matcher: "Bash", Hooks: []hook.Entry{
					{Type: "command", Command: "grep -q 'touch witness' && echo not this one >&2 && exit 2; exit 0", Where: hook.InBox},
				}}}}
				want = "hook"
			}
			c, _ := serve(t, cfg)
			id := newSession(t, c, "untrusted")
			end := turn(t, c, id, script(bashCall("touch witness"), bashCall("echo ran > other")))
			_, there := run(t, c, id, "ls witness other 2>/dev/null")
			if want == "" {
				if there != "other\nwitness\n" || len(end.Denials) != 0 {
					t.Errorf("nobody objects: %q, %+v", there, end.Denials)
				}
				return
			}
			denied := logged[holdfast.ToolDecision](t, c, id, holdfast.EventToolDenied)
			if there != "other\n" || len(end.Denials) != 1 || len(denied) != 1 || !strings.HasPrefix(denied[0].By, want) || denied[0].Reason == "" {
				t.Errorf("in the box %q, denied %+v", there, denied)
			}
		})
	}
}

// TestSDKX1_TheWholeProgram: the program of the article, in our words: a durable
// session, five hooks, sandbox settings, rules that allow; a server that ends, and
// another that goes on with the same session (SDK-X5). Reading outside is denied though
// a rule allows Read (SDK-X3), and the audit log has every execution and denial
// (SDK-X4).
func TestSDKX1_TheWholeProgram(t *testing.T) {
	cfg := settings(t, "local")
	sandboxFile(t, &cfg, `{"allowedReadPaths": ["/workspace"], "deniedCommands": ["touch"], "autoAllowBashIfSandboxed": true}`)
	cfg.Permissions.Allow = []string{"Read", "Write(/workspace/**)"}
	cfg.Hooks = config.Hooks{}
	for _, e := range []hook.Event{hook.SessionStart, hook.PreToolUse, hook.PostToolUse, hook.Stop, hook.SessionEnd} {
		cfg.Hooks[e] = []hook.Group{{Hooks: []hook.Entry{{Type: "command", Command: `printf '{"message": "%s"}' "$HOOK_EVENT"`}}}}
	}
	c, stop := serve(t, cfg)
	s, err := c.CreateSession(t.Context(), holdfast.CreateSession{Mode: "dontAsk"}, "")
	if err != nil {
		t.Fatal(err)
	}
	end := turn(t, c, s.ID, script(
		`{"tool":"Write","input":{"file_path":"notes","content":"one"}}`,
		bashCall("cat notes"),
		`{"tool":"Read","input":{"file_path":"/etc/passwd"}}`,
		bashCall("touch x"),
	))
	if len(end.Denials) != 2 || end.Denials[0].Tool != "Read" || end.Denials[1].Tool != "Bash" {
		t.Errorf("denied %+v", end.Denials)
	}
	stop()
	c, _ = serve(t, cfg)
	if end := turn(t, c, s.ID, "What do you know?"); !strings.HasPrefix(end.Result, "You have sent 2 messages.") {
		t.Errorf("the second server knows %q", end.Result)
	}
	testkit.Eventually(t, "the hooks behind the turns ran", func() bool {
		n := 0
		for _, h := range logged[holdfast.HookRan](t, c, s.ID, holdfast.EventHookRan) {
			if h.Event == "stop" {
				n++
			}
		}
		return n == 2
	})
	if _, err := c.EndSession(t.Context(), s.ID, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"sessionStart": 1, "preToolUse": 4, "postToolUse": 2, "stop": 2, "sessionEnd": 1}
	got := map[string]int{}
	for _, h := range logged[holdfast.HookRan](t, c, s.ID, holdfast.EventHookRan) {
		if got[h.Event]++; h.Message != h.Event {
			t.Errorf("a hook of %s said %q", h.Event, h.Message)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("hooks ran %v, want %v", got, want)
	}
	export, err := c.Audit(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer export.Close()
	chain, err := io.ReadAll(export)
	if err != nil {
		t.Fatal(err)
	}
	for typ, n := range map[string]int{"tool.allowed": 2, "tool.denied": 2, "hook.ran": 10} {
		if found := strings.Count(string(chain), `"type":"`+typ+`"`); found != n {
			t.Errorf("the audit log has %d of %s, want %d", found, typ, n)
		}
	}
}
