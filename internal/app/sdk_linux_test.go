package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/config"
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
	if err := app.Run(t.Context(), cfg, app.Options{Version: "test"}); !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), "httpProxyPort") {
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
	id := newSession(t, c, "untrusted")
	put(t, c, id, "secret/key", canary, 0)
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
	results := logged[holdfast.ToolFinished](t, c, id, holdfast.EventToolFinished)
	if len(results) != len(calls) {
		t.Fatalf("%d results: %+v", len(results), results)
	}
	for i, r := range results {
		if strings.Contains(r.Content, canary) || i > 7 && strings.Contains(r.Content, "secret/key") || strings.Contains(r.Content, "root:") {
			t.Errorf("%s shows %q", calls[i], r.Content)
		}
		if denied := i < 8; r.IsError != denied || denied && !strings.Contains(r.Content, "sandbox settings") {
			t.Errorf("%s: %+v", calls[i], r)
		}
	}
	if !strings.Contains(results[8].Content, "open/fine") || !strings.Contains(results[9].Content, "open/fine") || strings.Contains(results[10].Content, "secret/") {
		t.Errorf("what is allowed: %q, %q, %q", results[8].Content, results[9].Content, results[10].Content)
	}
	if _, out := run(t, c, id, "cat secret/*"); out != canary {
		t.Errorf("the denied tree holds %q", out)
	}
}
