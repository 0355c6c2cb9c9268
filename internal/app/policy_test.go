package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/app/apptest"
)

// Rules and sandbox settings of the server decide in its sessions: a rule holds in
// bypassPermissions, Bash is approved by the sandbox where one is in force and not
// on the host, and the log names the rule (SDK-P7, SDK-B19, SDK-W2,
// SDK-W4, SDK-W6).
func TestServerPermissionsDecide(t *testing.T) {
	cfg := settings(t, "mem")
	file := filepath.Join(t.TempDir(), "sandbox.json")
	if err := os.WriteFile(file, []byte(`{"autoAllowBashIfSandboxed": true, "deniedPaths": ["/workspace/secret"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Permissions.Deny, cfg.Permissions.Sandbox = []string{"Bash(rm *)"}, file
	c, _ := serve(t, cfg)
	for _, k := range []struct {
		req     holdfast.CreateSession
		command string
		allowed bool
		by      string
	}{
		{holdfast.CreateSession{Mode: "bypassPermissions"}, "env rm -rf x", false, "deny rule"},
		{holdfast.CreateSession{Mode: "bypassPermissions"}, "cat secret/x", false, "sandbox"},
		{holdfast.CreateSession{Mode: "default"}, "echo hi", true, "sandbox"},
		{holdfast.CreateSession{Mode: "dontAsk", Trust: "trusted"}, "echo hi", false, "mode"},
		{holdfast.CreateSession{Mode: "auto", Trust: "trusted"}, "echo hi", true, "mode"},
	} {
		ses, err := c.CreateSession(t.Context(), k.req, "")
		if err != nil {
			t.Fatal(err)
		}
		turn(t, c, ses.ID, `<script>[{"tool":"Bash","input":{"command":"`+k.command+`"}},{"say":"done"}]</script>`)
		events, err := c.Events(t.Context(), ses.ID, holdfast.EventFilter{Types: []holdfast.EventType{holdfast.EventToolAllowed, holdfast.EventToolDenied}})
		if err != nil || len(events) != 1 {
			t.Fatalf("%+v: %v, %v", k, events, err)
		}
		var d holdfast.ToolDecision
		if err := events[0].Decode(&d); err != nil {
			t.Fatal(err)
		}
		if (events[0].Type == holdfast.EventToolAllowed) != k.allowed || d.By != k.by || (d.Rule != "") != (k.by == "deny rule") {
			t.Errorf("%+v: %s %+v", k, events[0].Type, d)
		}
	}
}

// A server whose permissions cannot be read does not start.
func TestServerWithoutItsPermissions(t *testing.T) {
	for content, want := range map[string]string{"": "no such file", `{"deniedPath": []}`: "deniedPath", `{"deniedPaths": ["x"]}`: "deniedPaths[0]"} {
		cfg := settings(t, "mem")
		cfg.Permissions.Sandbox = filepath.Join(t.TempDir(), "sandbox.json")
		if content != "" {
			if err := os.WriteFile(cfg.Permissions.Sandbox, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := app.Run(t.Context(), cfg, app.Options{Version: "test", Drivers: apptest.Drivers()})
		if !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want it to name %q", content, err, want)
		}
	}
}
