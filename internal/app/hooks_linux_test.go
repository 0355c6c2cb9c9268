package app_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// example is a code block of docs/hooks.md.
func example(t *testing.T, language string) string {
	t.Helper()
	raw, err := os.ReadFile("../../docs/hooks.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(raw)
	if m == nil {
		t.Fatalf("docs/hooks.md has no example in %s", language)
	}
	return string(m[1])
}

// TestSDKH14_HooksOfTheDocs: the examples of docs/hooks.md do what it says, in a
// whole server with a real sandbox.
func TestSDKH14_HooksOfTheDocs(t *testing.T) {
	cfg := settings(t, "local")
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(example(t, "yaml")), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := config.Load(config.Source{File: file, Getenv: func(name string) string {
		if name == "HOME" {
			return "/h"
		}
		return ""
	}})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Hooks = loaded.Hooks
	c, _ := serve(t, cfg)
	if _, err := c.DeployAgent(t.Context(), "noted", tarOf(t,
		entry{name: "CLAUDE.md", data: "x"}, entry{name: ".claude/settings.json", data: example(t, "json")})); err != nil {
		t.Fatal(err)
	}
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Agent: "noted"}, "")
	if err != nil {
		t.Fatal(err)
	}
	end := turn(t, c, ses.ID, `<script>[{"tool":"Bash","input":{"command":"touch a; git push"}},{"tool":"Write","input":{"file_path":"b","content":"b"}},{"say":"done"}]</script>`)
	if end.Result != "done" {
		t.Errorf("end %+v", end)
	}
	denied := logged[holdfast.ToolDecision](t, c, ses.ID, holdfast.EventToolDenied)
	if len(denied) != 1 || denied[0].Reason != "pushing is for people" {
		t.Errorf("denied %+v", denied)
	}
	ran := logged[holdfast.HookRan](t, c, ses.ID, holdfast.EventHookRan)
	if !slices.ContainsFunc(ran, func(r holdfast.HookRan) bool {
		return r.Where == "box" && r.Event == "postToolUse" && slices.Equal(r.Context, []string{"the notes say: keep it short"})
	}) {
		t.Errorf("ran %+v", ran)
	}
	testkit.Eventually(t, "the turn is noted", func() bool {
		raw, _ := os.ReadFile(filepath.Join(cfg.Data, "turns.jsonl"))
		return strings.Contains(string(raw), `"lastAssistantMessage":"done"`) && strings.Contains(string(raw), string(ses.ID))
	})
}

// TestSDKH20_RealSandbox: 10 MB out of and into a sandbox, and nothing left of a
// hook that hangs or floods (SDK-H13, SDK-H17).
func TestSDKH20_RealSandbox(t *testing.T) {
	cfg := settings(t, "local")
	box := func(command string, ms float64) hook.Entry {
		return hook.Entry{Type: "command", Command: command, Timeout: ms, Where: hook.InBox}
	}
	cfg.Hooks = config.Hooks{hook.PostToolUse: {{Matcher: "Bash", Hooks: []hook.Entry{
		box(`head -c 10000000 /dev/zero | tr '\0' y; cat > /dev/null`, 0),
		box("sleep 4242 & (sleep 4242; true) & wait", 300),
		box("sleep 4242 & yes", 0),
		box("wc -c", 0),
		box("env | grep -v -e ^HOLDFAST_SESSION= -e ^HOLDFAST_RUNTIME= | grep -c -e HOLDFAST -e _KEY; env | grep ^HOOK_", 0),
	}}}}
	c, _ := serve(t, cfg)
	id := newSession(t, c, "untrusted")
	turn(t, c, id, `<script>[{"tool":"Bash","input":{"command":"head -c 300000 /dev/zero | tr '\\0' x"}},{"say":"done"}]</script>`)
	ran := slices.DeleteFunc(logged[holdfast.HookRan](t, c, id, holdfast.EventHookRan), func(r holdfast.HookRan) bool { return r.Event != "postToolUse" })
	if len(ran) != 5 {
		t.Fatalf("ran %+v", ran)
	}
	var outcomes []string
	for _, r := range ran {
		outcomes = append(outcomes, r.Outcome)
	}
	if !slices.Equal(outcomes, []string{"ok", "timeout", "failed", "ok", "ok"}) || !strings.HasPrefix(ran[0].Message, "yyyy") || len(ran[3].Message) < 5 {
		t.Errorf("outcomes %v: %.100q, %q, %q, %q", outcomes, ran[0].Message, ran[2].Reason, ran[3].Message, ran[4].Message)
	}
	if !strings.HasPrefix(ran[4].Message, "0\n") || !strings.Contains(ran[4].Message, "HOOK_TOOL_NAME=Bash") || !strings.Contains(ran[4].Message, "HOOK_CWD=/workspace") {
		t.Errorf("environment %q", ran[4].Message)
	}
	testkit.Eventually(t, "nothing sleeps", func() bool {
		res, out := run(t, c, id, `cat /proc/[0-9]*/cmdline | tr '\0' ' ' | grep -c 'sleep 424[2]'`)
		return res.ExitCode == 1 && strings.TrimSpace(out) == "0"
	})
}

// TestSDKH0_FileChangedForRealCommands: in a real sandbox, and on the host for a trusted
// session, the server's and the agent's hooks hear of each file that a command changed.
func TestSDKH0_FileChangedForRealCommands(t *testing.T) {
	cfg := settings(t, "local")
	cfg.Hooks = config.Hooks{hook.FileChanged: {{Matcher: "Bash", Hooks: []hook.Entry{{Type: "command", Command: "cat >> changed.jsonl; echo >> changed.jsonl"}}}}}
	c, _ := serve(t, cfg)
	own := `{"hooks":{"FileChanged":[{"hooks":[{"type":"command","command":"cat > /dev/null; echo heard >> ~/heard"}]}]}}`
	if _, err := c.DeployAgent(t.Context(), "listener", tarOf(t, entry{name: "CLAUDE.md", data: "x"}, entry{name: ".claude/settings.json", data: own})); err != nil {
		t.Fatal(err)
	}
	for _, trust := range []holdfast.Trust{holdfast.Untrusted, holdfast.Trusted} {
		ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Agent: "listener", Trust: string(trust), Mode: "bypassPermissions"}, "")
		if err != nil {
			t.Fatal(err)
		}
		turn(t, c, ses.ID, `<script>[{"tool":"Bash","input":{"command":"mkdir -p src .git; echo a > src/made; echo b > kept; touch .git/index"}},`+
			`{"tool":"Bash","input":{"command":"cat kept"}},{"tool":"Bash","input":{"command":"sed -i s/b/c/ kept; mv src/made src/moved; exit 7"}},`+
			`{"tool":"Bash","input":{"command":"cat ~/heard 2>/dev/null | wc -l"}},{"say":"done"}]</script>`)
		var told []string
		raw, err := os.ReadFile(filepath.Join(cfg.Data, "changed.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			var in hook.Input
			if strings.TrimSpace(line) == "" {
				continue
			}
			if err := json.Unmarshal([]byte(line), &in); err != nil {
				t.Fatal(err)
			}
			if in.Session == ses.ID {
				told = append(told, in.Trigger+" "+strings.TrimPrefix(in.FilePath, in.Cwd+"/"))
			}
		}
		want := []string{"created kept", "created src/made", "changed kept", "removed src/made", "created src/moved"}
		if !slices.Equal(told, want) {
			t.Errorf("%s: told %q, want %q", trust, told, want)
		}
		var heard []string
		for _, f := range logged[holdfast.ToolFinished](t, c, ses.ID, holdfast.EventToolFinished) {
			heard = append(heard, strings.TrimSpace(f.Content))
		}
		if trust == holdfast.Untrusted && heard[len(heard)-1] != "5" {
			t.Errorf("the agent's own hook heard %q", heard)
		}
		if n := logged[holdfast.Notice](t, c, ses.ID, holdfast.EventNotice); len(n) != 0 {
			t.Errorf("%s: notices %+v", trust, n)
		}
	}
}
