package app_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

// decided runs one turn with tool calls and says of each what decided it.
func decided(t *testing.T, c *client.Client, id holdfast.SessionID, calls ...string) []string {
	t.Helper()
	head, err := c.Session(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	turn(t, c, id, "<script>["+strings.Join(calls, ",")+`,{"say":"done"}]</script>`)
	var out []string
	for ev, err := range c.AllEvents(t.Context(), id, head.LastSeq) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type != holdfast.EventToolAllowed && ev.Type != holdfast.EventToolDenied {
			continue
		}
		var d holdfast.ToolDecision
		if err := ev.Decode(&d); err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.TrimSpace(strings.TrimPrefix(string(ev.Type), "tool.")+" by "+d.By+" "+d.Rule))
	}
	return out
}

func bashCall(command string) string {
	return `{"tool":"Bash","input":{"command":"` + command + `"}}`
}

// TestHZ6_AgentWritesItsOwnSettings: an agent in a real box that writes itself
// rules, a mode and hooks gets nothing by it; what it forbids itself is forbidden;
// what cannot be read forbids everything, until the user mends it (HZ-6, SDK-B19).
func TestHZ6_AgentWritesItsOwnSettings(t *testing.T) {
	for _, driver := range []string{"mem", "local"} {
		t.Run(driver, func(t *testing.T) {
			c, _ := serve(t, settings(t, driver))
			if _, err := c.DeployAgent(t.Context(), "bound", tarOf(
				t, entry{name: "CLAUDE.md", data: "x"},
				entry{name: "holdfast.yaml", data: "mode: dontAsk\npermissions:\n  allow: [Write, 'Bash(echo *)', 'Bash(touch *)']\n  deny: ['Bash(touch no*)']\n"},
				entry{name: ".claude/settings.json", data: `{"permissions": {"deny": ["Write(/kept/**)"]}}`},
			)); err != nil {
				t.Fatal(err)
			}
			ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Agent: "bound"}, "")
			if err != nil || ses.Mode != holdfast.ModeDontAsk {
				t.Fatalf("session %+v (%v)", ses, err)
			}
			check := func(what string, got []string, want ...string) {
				t.Helper()
				if !slices.Equal(got, want) {
					t.Errorf("%s: %q, want %q", what, got, want)
				}
			}
			write := func(file, text string) string {
				return `{"tool":"Write","input":{"file_path":"` + file + `","content":` + text + `}}`
			}
			check("as deployed", decided(t, c, ses.ID, bashCall("echo hi"), bashCall("touch no"), bashCall("ls"), write("kept/x", `"x"`)),
				"allowed by allow rule Bash(echo *)", "denied by deny rule Bash(touch no*)", "denied by mode", "denied by deny rule Write(./kept/**)")
			check("with rules of its own", decided(t, c, ses.ID,
				write(".claude/settings.json", `"{\"permissions\": {\"allow\": [\"Bash\"], \"defaultMode\": \"bypassPermissions\"}, \"hooks\": {\"PreToolUse\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"touch /workspace/hooked\"}]}]}}"`),
				write("holdfast.yaml", `"mode: bypassPermissions\npermissions: {allow: [Bash], sandbox: {autoAllowBashIfSandboxed: true}}\n"`),
				bashCall("ls"), bashCall("touch no"), write("kept/x", `"x"`), bashCall("echo hi")),
				"allowed by allow rule Write", "allowed by allow rule Write",
				"denied by mode", "denied by deny rule Bash(touch no*)", "denied by deny rule Write(./kept/**)", "allowed by allow rule Bash(echo *)")
			check("forbidden by itself", decided(t, c, ses.ID,
				write("holdfast.yaml", `"permissions: {deny: ['Bash(echo *)'], sandbox: {deniedPaths: [/workspace/own]}}\n"`),
				bashCall("echo hi"), bashCall("touch own/x"), bashCall("touch x")),
				"allowed by allow rule Write", "denied by deny rule Bash(echo *)", "denied by sandbox", "allowed by allow rule Bash(touch *)")
			check("unreadable", decided(t, c, ses.ID, write("holdfast.yaml", `"permissions: {denny: []}\n"`), bashCall("echo hi"), write("holdfast.yaml", `""`)),
				"allowed by allow rule Write", "denied by settings", "denied by settings")
			if n := slices.IndexFunc(logged[holdfast.Notice](t, c, ses.ID, holdfast.EventNotice), func(n holdfast.Notice) bool {
				return n.Code == "settings.unreadable" && strings.Contains(n.Text, `"denny"`)
			}); n < 0 {
				t.Error("no notice says what is wrong with the file")
			}
			if _, err := c.WriteFile(t.Context(), ses.ID, "holdfast.yaml", strings.NewReader(""), 0o644); err != nil {
				t.Fatal(err)
			}
			check("mended", decided(t, c, ses.ID, bashCall("echo hi")), "allowed by allow rule Bash(echo *)")
			files, err := c.ListFiles(t.Context(), ses.ID, "")
			if err != nil || slices.ContainsFunc(files.Entries, func(f holdfast.FileInfo) bool { return f.Path == "hooked" || f.Path == "no" }) {
				t.Errorf("files %+v (%v)", files, err)
			}
		})
	}
}
