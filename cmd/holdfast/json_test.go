package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// withoutJSON are the commands whose --json is not tried here, with the reason.
var withoutJSON = map[string]string{
	"mcp":                     "its stdout is a protocol of its own",
	"acp":                     "its stdout is a protocol of its own",
	"chat":                    "testdata/scripts/chat.txtar reads its events",
	"session checkpoints":     "TestSessionCheckpoints reads its JSON",
	"session rewind":          "TestSessionRewind reads its JSON",
	"session hold":            "TestSessionHold reads its JSON",
	"session release":         "TestSessionHold reads its JSON",
	"session fork":            "TestSessionFork reads its JSON",
	"audit new-key":           "needs a directory without a server; testdata/scripts/damage.txtar tries it",
	"serve":                   "runs on; testdata/scripts/serve.txtar reads its line",
	"demo":                    "starts servers of its own for a minute",
	"bench":                   "starts servers of its own for minutes",
	"torture":                 "starts servers of its own for minutes",
	"double chat-completions": "runs on until it is told to end",
	"double messages-api":     "runs on until it is told to end",
	"terminal":                "a terminal has no JSON form and says so",
	"completion":              "its result is a script",
	"runtime install":         "fetches packages: TestRuntimeCommands reads its JSON",
	"runtime path":            "needs one that is installed: TestRuntimeCommands reads its JSON",
}

// question makes a session whose turn waits for a person, and gives the question.
func question(t *testing.T, vars map[string]string) (asked holdfast.Approval) {
	t.Helper()
	code, out, errs := runCLI(t, vars, "", "session", "create", "--mode", "default")
	if code != 0 {
		t.Fatal(errs)
	}
	id := strings.TrimSpace(out)
	if code, _, errs = runCLI(t, vars, "", "send", id, `<script>[{"tool":"Bash","input":{"command":"true"}},{"say":"ok"}]</script>`, "--no-wait"); code != 0 {
		t.Fatal(errs)
	}
	testkit.Eventually(t, "the turn asks", func() bool {
		code, out, errs := runCLI(t, vars, "", "approvals", "list", "--session", id, "--json")
		if code != 0 {
			t.Fatal(errs)
		}
		var list struct{ Approvals []holdfast.Approval }
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		for _, a := range list.Approvals {
			asked = a
		}
		return asked.ID != ""
	})
	return asked
}

// TestEveryCommandSpeaksJSON: with --json, stdout of every command is JSON and
// nothing else.
func TestEveryCommandSpeaksJSON(t *testing.T) {
	vars := serveWith(t, "mem")
	vars["XDG_CONFIG_HOME"] = t.TempDir()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "CLAUDE.md"), []byte("Be brief."), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "s.json"), []byte(`{"deniedPaths": ["/etc"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := runCLI(t, vars, "", "session", "create")
	if code != 0 {
		t.Fatal(errs)
	}
	id := strings.TrimSpace(out)
	if code, _, errs = runCLI(t, vars, "", "agent", "deploy", dir, "--name", "a"); code != 0 {
		t.Fatal(errs)
	}
	code, secret, errs := runCLI(t, vars, "", "key", "create")
	if code != 0 {
		t.Fatal(errs)
	}
	key := secret[len("hfk_"):][:16]
	asked, denied := question(t, vars), question(t, vars)
	// In this order: later ones use what earlier ones made.
	lines := []string{
		"version", "man", "doctor --driver mem", "agent deploy DIR --name b", "agent list", "agent show a", "agent update a --description x", "agent delete b",
		"approvals list", "approvals show ASKED", "approvals allow ASKED --scope session --rule Bash", "approvals deny DENIED --reason no", "approvals rules ASKER", "approvals revoke ASKER Bash", "session create", "session list", "session search hello", "session show ID", "session update ID --mode plan", "session rename ID new",
		"session tag ID x y", "send ID hello", "send ID hello --no-wait", "session events ID", "session transcript ID",
		"exec ID -- echo x", "files put ID a.txt DIR/CLAUDE.md", "files ls ID", "files cat ID a.txt", "files get ID a.txt DIR/got", "cp DIR/CLAUDE.md ID:b.txt", "files rm ID a.txt", "session diff ID", "files ls ID --at 1", "files restore ID . --at 1",
		"containers list", "containers stop --all", "containers prune", "snapshot list", "snapshot gc --dry-run", "snapshot gc", "snapshot verify", "policy simulate ID --set permissions.deny=Bash", "session pause ID --interrupt", "session resume ID --dry-run", "session resume ID",
		"workspace create w", "workspace list", "workspace show w", "workspace update w --title x", "workspace delete w",
		"send ID <script>[{\"stall_ms\":600000}]</script> --no-wait", "session interrupt ID", "session end ID", "session delete ID", "trash list", "trash restore ID", "session delete ID", "trash empty --yes",
		"policy explain Bash -- ls", "check command --settings DIR/s.json -- ls", "check path --settings DIR/s.json -- /project",
		"secret set x --file DIR/CLAUDE.md", "secret list", "secret rotate", "secret rm x", "key create --name x", "key list", "key revoke KEY", "audit key", "audit head", "runtime list --data DIR", "audit export DIR/a.jsonl", "audit verify DIR/a.jsonl", "models", "backup DIR/b", "restore DIR/b --data DIR/restored",
		"config list", "config explain limits", "config effective", "session prune --ended --dry-run",
		"context add team http://127.0.0.1:1", "context list", "context use local", "context rm team",
	}
	tried := map[string]bool{}
	for _, l := range lines {
		args := strings.Fields(strings.NewReplacer("ASKED", string(asked.ID), "ASKER", string(asked.Session), "DENIED", string(denied.ID), "ID", id, "DIR", dir, "KEY", key).Replace(l))
		code, out, errs := runCLI(t, vars, "", append(args, "--json")...)
		if args[0] == "exec" || args[0] == "check" || args[0] == "policy" {
			code, out, errs = runCLI(t, vars, "", append([]string{"--json"}, args...)...)
		}
		n := 0
		dec := json.NewDecoder(strings.NewReader(out))
		for {
			var v any
			err := dec.Decode(&v)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Errorf("%s: %q is not JSON: %v", l, out, err)
				break
			}
			n++
		}
		if code != 0 || n == 0 {
			t.Errorf("%s: code %d, %d documents, %q", l, code, n, errs)
		}
		for _, node := range commands(model(t)) {
			if cmd := commandOf(node); len(node.Children) == 0 && strings.HasPrefix(l+" ", cmd+" ") {
				tried[cmd] = true
			}
		}
	}
	for _, node := range commands(model(t)) {
		if cmd := commandOf(node); len(node.Children) == 0 && !tried[cmd] && withoutJSON[cmd] == "" {
			t.Errorf("%s is not tried with --json: give it a line above, or a reason in withoutJSON", cmd)
		}
	}
	for cmd := range withoutJSON {
		if tried[cmd] {
			t.Errorf("%s is tried and need not be", cmd)
		}
	}
}
