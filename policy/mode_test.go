package policy_test

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

func engine(t testing.TB, cfg policy.Config) *policy.Engine {
	t.Helper()
	e, err := policy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func decide(t testing.TB, e *policy.Engine, req policy.Request) policy.Decision {
	t.Helper()
	d, err := e.Decide(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func rules(t testing.TB, allow, ask, deny []string) policy.RuleSet {
	t.Helper()
	r, err := policy.ParseRules(allow, ask, deny)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func bash(mode holdfast.Mode, command string) policy.Request {
	b, _ := json.Marshal(map[string]string{"command": command})
	return policy.Request{Mode: mode, Tool: "Bash", Input: b}
}

func file(mode holdfast.Mode, tool, name string) policy.Request {
	b, _ := json.Marshal(map[string]string{"file_path": name})
	return policy.Request{Mode: mode, Tool: tool, Input: b, ReadOnly: tool != "Write" && tool != "Edit"}
}

// The whole table: every mode, every tool name (SDK-P2, SDK-P3, SDK-P6,
// SDK-P8).
func TestModeTable(t *testing.T) {
	names := []string{"Read", "Glob", "Grep", "LS", "TodoWrite", "Write", "Edit", "Bash", "WebFetch", "WebSearch", "Task", "mcp__x__y", "Nope", "read", ""}
	readOnly := map[string]bool{"Read": true, "Glob": true, "Grep": true, "LS": true, "Nope": true, "mcp__x__y": true}
	allowed := map[holdfast.Mode]string{
		holdfast.ModeBypassPermissions: "Read Glob Grep LS TodoWrite Write Edit Bash WebFetch WebSearch Task mcp__x__y",
		holdfast.ModeAcceptEdits:       "Read Glob Grep LS TodoWrite Write Edit",
		holdfast.ModeDefault:           "Read Glob Grep LS TodoWrite",
		holdfast.ModeAuto:              "Read Glob Grep LS TodoWrite Write Edit Bash WebSearch Task",
		holdfast.ModeDontAsk:           "Read Glob Grep LS TodoWrite",
		holdfast.ModePlan:              "Read Glob Grep LS",
		"":                             "",
		"yolo":                         "",
	}
	for mode, list := range allowed {
		want := map[string]bool{}
		for _, n := range strings.Fields(list) {
			want[n] = true
		}
		for _, n := range names {
			d := decide(t, new(policy.Engine), policy.Request{
				Session: "id", Mode: mode, Tool: n, ReadOnly: readOnly[n], Input: json.RawMessage(`{"file_path":"/workspace/x","command":"ls","url":"https://example.com"}`),
			})
			if (d.Verdict == policy.Allowed) != want[n] {
				t.Errorf("%q %q: %+v", mode, n, d)
			}
			if (d.Verdict == policy.Allowed) != (d.Reason == "") || d.By != "mode" {
				t.Errorf("%q %q: by %q, reason %q", mode, n, d.By, d.Reason)
			}
		}
	}
}

func TestAReaderThatChangesIsDenied(t *testing.T) {
	for _, mode := range []holdfast.Mode{holdfast.ModeBypassPermissions, holdfast.ModePlan} {
		d := decide(t, new(policy.Engine), policy.Request{Mode: mode, Tool: "Read"})
		if d.Verdict != policy.Denied || !strings.Contains(d.Reason, `"Read"`) {
			t.Errorf("%s: %+v", mode, d)
		}
	}
}

func TestModeSaysHowToAllow(t *testing.T) {
	req := bash(holdfast.ModeDefault, "ls")
	req.Session = "0198"
	if d := decide(t, new(policy.Engine), req); !strings.Contains(d.Reason, "holdfast session update 0198 --mode bypassPermissions") {
		t.Error(d.Reason)
	}
	if d := decide(t, new(policy.Engine), bash("yolo", "ls")); !strings.Contains(d.Reason, `"yolo"`) {
		t.Error(d.Reason)
	}
}

// Edits are accepted inside the workspace only (SDK-P5).
func TestAcceptEditsStaysInTheWorkspace(t *testing.T) {
	for name, want := range map[string]policy.Verdict{
		"/workspace/a": policy.Allowed, "a/b": policy.Allowed, "./a": policy.Allowed, "/workspace": policy.Allowed,
		"/etc/passwd": policy.Denied, "../x": policy.Denied, "/workspace/../etc/x": policy.Denied, "/workspacex/a": policy.Denied, "~/x": policy.Denied, "": policy.Denied,
	} {
		if d := decide(t, new(policy.Engine), file(holdfast.ModeAcceptEdits, "Write", name)); d.Verdict != want {
			t.Errorf("%q: %+v", name, d)
		}
	}
}

// What mode auto lets pass and what it wants asked (SDK-P4).
func TestAutoAsksWhatIsDangerous(t *testing.T) {
	for cmd, safe := range map[string]bool{
		"go test ./...": true, "git status && git diff": true, "ls | head > out.txt": true, "sed -n p x": true, "echo 'rm -rf /'": true, "python3 script.py": true,
		"rm -rf build": false, "make && sudo make install": false, "curl https://x": false, "git push": false, "git reset --hard HEAD": false, "echo x > /etc/cron.d/y": false,
		"cat ~/.ssh/id_rsa": false, "cat .env": false, "timeout 5 rm x": false, "bash -c 'rm x'": false, "$CMD": false, "python3 -c 'x'": false, "find . -delete": false, "kill 1": false, "x (": false, "cp a --target=/root/.aws/credentials": true,
		"cat sub/server.pem": false, "grep x --file=~/.netrc": false, "echo x >> ~/.netrc": false,
	} {
		d := decide(t, new(policy.Engine), bash(holdfast.ModeAuto, cmd))
		if (d.Verdict == policy.Allowed) != safe || !safe && d.Reason == "" {
			t.Errorf("%q: %+v", cmd, d)
		}
	}
	for name, safe := range map[string]bool{"a.go": true, "/etc/hosts": false, ".env": false, "keys/x.pem": false} {
		if d := decide(t, new(policy.Engine), file(holdfast.ModeAuto, "Edit", name)); (d.Verdict == policy.Allowed) != safe {
			t.Errorf("%q: %+v", name, d)
		}
	}
}

// links are the symlinks of a file system, by path; a target of "!" cannot be read.
type links map[string]string

func (l links) Readlink(name string) (string, error) {
	switch target, ok := l[name]; {
	case target == "!":
		return "", check.ErrUnseen
	case ok:
		return target, nil
	}
	return "", syscall.EINVAL
}

func (links) ReadDir(string) ([]check.Entry, error) { return nil, check.ErrUnknown }

// TestEditsOnTheHostStayInTheWorkspace: on the host no mode lets an edit through a link out of the workspace, and a
// link that cannot be read leads out of it (I-49). In a box, and by links that stay inside, edits need no person.
func TestEditsOnTheHostStayInTheWorkspace(t *testing.T) {
	e := engine(t, policy.Config{})
	fs := links{
		"/host/tree": "/workspace", "/workspace/out": "/etc", "/workspace/file": "../etc/passwd", "/workspace/in": "/host/tree/real",
		"/workspace/loop": "loop", "/workspace/unseen": "!", "/workspace/back": "/elsewhere",
	}
	for name, want := range map[string]bool{
		"a": true, "real/a": true, "in/a": true, "/host/tree/a": true, "/host/tree/in/a": true, "real/../a": true,
		"out/a": false, "file": false, "/host/tree/out/a": false, "out/../a": false, "in/../out/a": false, "loop": false, "unseen": false,
		"back/a": false, "/etc/a": false,
	} {
		for _, mode := range []holdfast.Mode{holdfast.ModeAcceptEdits, holdfast.ModeAuto} {
			req := file(mode, "Write", name)
			req.FS = fs
			req.Named = func(p string) string { return strings.Replace(p, "/host/tree", "/workspace", 1) }
			if d := decide(t, e, req); (d.Verdict == policy.Allowed) != want {
				t.Errorf("mode %s, %s on the host: %v by %s: %s", mode, name, d.Verdict, d.By, d.Reason)
			}
			if req.Sandboxed = true; name == "out/a" && decide(t, e, req).Verdict != policy.Allowed {
				t.Errorf("mode %s, %s in a box is asked", mode, name)
			}
		}
	}
}
