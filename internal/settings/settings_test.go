package settings

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/policy"
)

func parseOne(name, text string) (Settings, error) {
	return Parse(map[string][]byte{name: []byte(text)}, nil)
}

func rules(list []policy.Rule) string {
	var out []string
	for _, r := range list {
		out = append(out, r.String())
	}
	return strings.Join(out, " ")
}

func TestParseBothFiles(t *testing.T) {
	s, err := Parse(map[string][]byte{
		OwnFile: []byte(`# an agent
description: reviews changes
runtime: native
model: scripted
mode: plan
permissions:
  allow: [Bash(git *)]
  ask:
    - "Bash(git push *)"
  deny:
    - Read(~/.ssh/**)
  sandbox:
    deniedPaths: [/etc]
    allowedCommands: []
    network: {allowedDomains: ["*.example.com"]}
hooks:
  preToolUse: [{matcher: Bash, command: "true"}]
`),
		ClaudeFile: []byte(`{"$schema": "x", "model": "opus", "permissions": {"allow": ["WebFetch(domain:example.com)"],
			"deny": ["Read(/secrets/**)", "Read(//etc/shadow)", "Edit(./go.sum)"], "allow": [], "additionalDirectories": ["../x"]}}`),
		"README.md": []byte("{"),
	}, nil)
	if err == nil {
		t.Fatalf("the key allow stood there twice: %+v", s)
	}
	files := map[string][]byte{
		OwnFile: []byte("description: reviews changes\nruntime: native\nmodel: scripted\nmode: plan\npermissions:\n  allow: [Bash(git *)]\n" +
			"  ask:\n    - \"Bash(git push *)\"\n  deny:\n    - Read(~/.ssh/**)\n  sandbox:\n    deniedPaths: [/etc]\n    allowedCommands: []\n" +
			"    network: {allowedDomains: [\"*.example.com\"]}\nhooks:\n  preToolUse: [{matcher: Bash, hooks: [{type: command, command: \"true\", timeout: 5}]}]\n"),
		ClaudeFile: []byte(`{"$schema": "x", "model": "opus", "hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "x", "timeout": 1}]}]}, "permissions": {"defaultMode": "acceptEdits", "allow": ["Edit(/docs/**)"],
			"deny": ["Read(/secrets/**)", "Read(//etc/shadow)", "Edit(./go.sum)"], "additionalDirectories": ["../x"]}}`),
	}
	if s, err = Parse(files, nil); err != nil {
		t.Fatal(err)
	}
	if s.Description != "reviews changes" || s.Runtime != "native" || s.Model != "scripted" || s.Mode != holdfast.ModePlan {
		t.Errorf("settings %+v", s)
	}
	if got := rules(s.Rules.Allow); got != "Bash(git *) Edit(./docs/**)" {
		t.Errorf("allow %s", got)
	}
	if got := rules(s.Rules.Deny); got != "Read(~/.ssh/**) Read(./secrets/**) Read(/secrets/**) Read(//etc/shadow) Edit(./go.sum)" {
		t.Errorf("deny %s", got)
	}
	if got := rules(s.Rules.Ask); got != "Bash(git push *)" {
		t.Errorf("ask %s", got)
	}
	if s.Sandbox == nil || s.Sandbox.AllowedCommands == nil || len(s.Sandbox.AllowedCommands) != 0 || s.Sandbox.Network.AllowedDomains[0] != "*.example.com" {
		t.Errorf("sandbox %v", s.Sandbox)
	}
	if h := s.Hooks["preToolUse"]; len(s.Hooks) != 1 || len(h) != 2 || h[0].Matcher != "Bash" || h[0].Hooks[0].Timeout != 5 || h[1].Hooks[0].Timeout != 1000 {
		t.Errorf("hooks %+v", s.Hooks)
	}
	want := []string{ClaudeFile + `: "model" is ignored: it means nothing here`, ClaudeFile + ": permissions.additionalDirectories is ignored: tools work in the box's own directories"}
	if slices.Sort(s.Notices); !slices.Equal(s.Notices, want) {
		t.Errorf("notices %q", s.Notices)
	}
	if s.Empty() || !(Settings{}).Empty() {
		t.Error("Empty is wrong")
	}
}

// TestSDKP20_B20_RefusedSettings: what makes no sense names file, field and value,
// and says what would (SDK-P20, SDK-B20).
func TestSDKP20_B20_RefusedSettings(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{OwnFile, "modle: x", `holdfast.yaml: the key "modle" is not known hint: the keys known there are description, hooks, mode, model, permissions, runtime`},
		{OwnFile, "permissions: {denny: []}", `permissions: the key "denny" is not known hint: the keys known there are allow, ask, deny, sandbox`},
		{OwnFile, "permissions: [x]", "permissions: the value must be a map of keys and values"},
		{OwnFile, "permissions:", "permissions: no value is given"},
		{OwnFile, "mode: yolo", `mode: "\"yolo\"" is not a permission mode hint: use default`},
		{OwnFile, "mode: [plan]", "mode: "},
		{OwnFile, "workspace_instructions: maybe", `workspace_instructions: "\"maybe\"" is neither allow nor deny hint: write workspace_instructions: allow`},
		{OwnFile, "workspace_instructions: true", `workspace_instructions: "true" is neither allow nor deny`},
		{OwnFile, "model: 4", `model: "4" is not text`},
		{OwnFile, "model: ''", "model: the value is empty"},
		{OwnFile, "description: " + strings.Repeat("x", 1001), "description: "},
		{OwnFile, `description: "a\eb"`, "control character"},
		{OwnFile, "permissions: {allow: Bash}", `permissions.allow: "\"Bash\"" is not a list of rules`},
		{OwnFile, "permissions: {deny: [Read, 3]}", `permissions.deny[1]: "3" is not a rule`},
		{OwnFile, "permissions: {deny: [Read, 'Bsh(*)']}", `holdfast.yaml: permissions.deny[1]: rule: "Bsh(*)" is not a valid rule: there is no such tool hint: use a tool's name`},
		{OwnFile, "permissions: {ask: ['']}", `permissions.ask[0]: rule: "" is not a valid rule: it is empty`},
		{OwnFile, "permissions: {deny: ['Read(/etc/)']}", `no path ends in a slash`},
		{OwnFile, "permissions: {deny: ['Read(/a/../b)']}", `it can never match`},
		{OwnFile, "permissions: {sandbox: {deniedPaths: [etc]}}", `holdfast.yaml: permissions.sandbox: sandbox settings: setting deniedPaths[0]: the path is relative: "etc" hint: write the path from the root`},
		{OwnFile, "permissions: {sandbox: {deniedPaths: ['']}}", "deniedPaths[0]: an empty path"},
		{OwnFile, "permissions: {sandbox: {denied: []}}", `permissions.sandbox: sandbox settings: the sandbox settings cannot be parsed: unknown field "denied"`},
		{OwnFile, "permissions: {sandbox: {network: {httpProxyPort: 1}}}", "nothing would go through port 1"},
		{OwnFile, "permissions: {sandbox: []}", "permissions.sandbox: the value must be a map of keys and values"},
		{OwnFile, "hooks: [x]", "hooks: the value must be a map from events"},
		{OwnFile, "hooks: {preTool: []}", `holdfast.yaml: hook: hooks.preTool: "preTool" is not a hook event`},
		{OwnFile, "hooks: {preToolUse: [{matcher: '(', hooks: [{type: command, command: x}]}]}", `"(" is not a regular expression`},
		{OwnFile, "hooks: {preToolUse: [{hooks: [{type: command, command: x, where: host}]}]}", "run in its sandbox only"},
		{OwnFile, "hooks: {preToolUse: [{hooks: [{type: http, url: 'https://x.example'}]}]}", "run in its sandbox only"},
		{ClaudeFile, `{"hooks": {"preToolUsed": []}}`, `.claude/settings.json: hook: hooks.preToolUsed: "preToolUsed" is not a hook event`},
		{ClaudeFile, `{"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "comand": "x"}]}]}}`, `unknown field "comand"`},
		{OwnFile, "a: &x 1\nb: *x", "an anchor or alias"},
		{OwnFile, "model: !!str x", "a tag"},
		{OwnFile, "model: x\nmodel: y", "already defined"},
		{OwnFile, "model: x\n---\nmodel: y", "more than one YAML document"},
		{OwnFile, "- x", "the file must be a map of keys and values"},
		{OwnFile, "x", "the file must be a map of keys and values"},
		{OwnFile, "model: \xff", "not UTF-8"},
		{OwnFile, "a: " + strings.Repeat("[", 5000), "brackets"},
		{OwnFile, strings.Repeat("- ", 5000), "levels deep"},
		{OwnFile, strings.Repeat("#", MaxOwn+1), "the file is larger than 65536 bytes"},
		{ClaudeFile, `{"permissions": {"denied": []}}`, `.claude/settings.json: permissions: the key "denied" is not known`},
		{ClaudeFile, `{"permissions": {"defaultMode": "loose"}}`, `permissions.defaultMode: "\"loose\"" is not a permission mode`},
		{ClaudeFile, `{"permissions": {"deny": ["Nope"]}}`, `.claude/settings.json: permissions.deny[0]: rule: "Nope" is not a valid rule: there is no such tool`},
		{ClaudeFile, `{"permissions": null}`, "permissions: no value is given"},
		{ClaudeFile, `{"permissions": {}, "permissions": {}}`, `the key "permissions" occurs twice`},
		{ClaudeFile, `{"a": 1}{}`, "cannot be parsed"},
		{ClaudeFile, `{"a": 1`, "unexpected end"},
		{ClaudeFile, `[]`, "the file must be a map of keys and values"},
		{ClaudeFile, `{"x": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}", "levels deep"},
	} {
		t.Run(c.file+" "+c.text[:min(len(c.text), 40)], func(t *testing.T) {
			_, err := parseOne(c.file, c.text)
			if !holdfast.IsKind(err, holdfast.KindInvalid) {
				t.Fatalf("got %v, want invalid", err)
			}
			if got := err.Error() + " hint: " + holdfast.HintOf(err); !strings.Contains(got, c.want) || !strings.Contains(got, c.file) {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestNothingSaysNothing(t *testing.T) {
	for _, c := range []struct{ file, text string }{
		{OwnFile, ""}, {OwnFile, "# nothing\n"}, {OwnFile, " \n"}, {OwnFile, "{}"}, {ClaudeFile, ""}, {ClaudeFile, "{}"}, {ClaudeFile, `{"theme": "dark", "$schema": null}`},
	} {
		s, err := parseOne(c.file, c.text)
		if err != nil || !s.Empty() || s.Mode != "" || s.Hooks != nil || s.Notices != nil {
			t.Errorf("%s %q: %+v (%v)", c.file, c.text, s, err)
		}
	}
}

// TestTighteningNeverLoosens: of a workspace's files count only what denies, what
// asks and what the sandbox refuses (SDK-B19).
func TestTighteningNeverLoosens(t *testing.T) {
	cfg, err := Tightening(map[string][]byte{
		OwnFile: []byte("mode: bypassPermissions\nmodel: x\nhooks: {preToolUse: []}\npermissions:\n  allow: [Bash, NoTool]\n  ask: [Write]\n" +
			"  sandbox: {autoAllowBashIfSandboxed: true, allowUnsandboxedCommands: true, enableWeakerNestedSandbox: true, allowNestedSandbox: true, deniedPaths: [/x], deniedWritePaths: [/y], network: {httpProxyPort: 1, allowLocalBinding: true}, ripgrep: {command: evil}}\n"),
		ClaudeFile: []byte(`{"permissions": {"allow": ["Bash(*)"], "deny": ["WebFetch"], "defaultMode": "bypassPermissions"}, "hooks": {"PreToolUse": []}}`),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !cfg.Tighten || cfg.Rules.Allow != nil || cfg.Granted != nil || rules(cfg.Rules.Ask) != "Write" || rules(cfg.Rules.Deny) != "WebFetch" {
		t.Errorf("layer %+v", cfg)
	}
	if got := cfg.Sandbox.String(); got != `deniedPaths: ["/x"], deniedWritePaths: ["/y"], network: {}` {
		t.Errorf("sandbox %s", got)
	}
	if _, err := Tightening(map[string][]byte{ClaudeFile: []byte(`{"permissions": {"deny": ["Nope"]}}`)}, nil); err == nil {
		t.Error("a deny rule that cannot be read was passed over")
	}
}

// FuzzAgentSettings: whatever stands in the files, reading them ends, and what was
// read makes a policy; what a workspace says makes nothing allowed.
func FuzzAgentSettings(f *testing.F) {
	f.Add("mode: plan\npermissions:\n  deny: [Read(/etc/**)]\n", `{"permissions": {"allow": ["Bash"], "ask": ["Write(/x)"]}}`)
	f.Add("permissions: {sandbox: {deniedCommands: [rm]}}", `{"hooks": {"PreToolUse": []}, "env": {}}`)
	f.Add("a: [[[[", `{"a": [[[[`)
	f.Add("? - ? - a\n: |\n  x", `{"a": "\ud800"}`)
	f.Fuzz(func(t *testing.T, own, claude string) {
		files := map[string][]byte{OwnFile: []byte(own), ClaudeFile: []byte(claude)}
		s, err := Parse(files, nil)
		if err != nil && !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Fatalf("not invalid: %v", err)
		}
		if err == nil {
			if _, err := policy.New(s.Layer()); err != nil {
				t.Fatalf("what was read makes no policy: %v", err)
			}
			if err := new(hook.Registry).Load(s.Hooks, hook.InBox); err != nil {
				t.Fatalf("what was read makes no hooks: %v", err)
			}
		}
		cfg, err := Tightening(files, nil)
		if err != nil {
			return
		}
		base, err := policy.New(policy.Config{})
		if err != nil {
			t.Fatal(err)
		}
		tight, err := base.With(cfg)
		if err != nil {
			t.Fatalf("what was read makes no policy: %v", err)
		}
		for _, mode := range []holdfast.Mode{holdfast.ModeDefault, holdfast.ModeDontAsk, holdfast.ModePlan} {
			for _, tool := range []string{"Bash", "Write", "WebFetch", "Task", "mcp__x__y"} {
				req := policy.Request{Mode: mode, Tool: tool, Input: json.RawMessage(`{"command": "git push", "file_path": "/workspace/a", "url": "https://example.com"}`), Sandboxed: true}
				if d, err := tight.Decide(t.Context(), req); err != nil || d.Verdict == policy.Allowed {
					t.Fatalf("%s in mode %s: %v %v", tool, mode, d, err)
				}
			}
		}
	})
}

// TestHostileTextIsBounded: text that takes a reader of YAML long is refused before.
func TestHostileTextIsBounded(t *testing.T) {
	for _, part := range []string{"[", "{", "- ", "? ", "a: ", "!!str ", "*a ", "&a ", "[a,", "\"\" ", "a: |\n", "-\n", "'", "a:\n - "} {
		text := strings.Repeat(part, MaxOwn/len(part))
		if _, err := parseOne(OwnFile, text); err == nil {
			t.Errorf("%q, repeated, was read", part)
		}
	}
	var b strings.Builder
	b.WriteString("permissions:\n  deny:\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "    - Read(/srv/%d/**)\n", i)
	}
	if s, err := parseOne(OwnFile, b.String()); err != nil || len(s.Rules.Deny) != 1000 {
		t.Errorf("a thousand rules were not read: %v", err)
	}
}

// A folder may let the workspace instruct the agent; it has to say so.
func TestWorkspaceInstructions(t *testing.T) {
	for text, want := range map[string]bool{"workspace_instructions: allow": true, "workspace_instructions: deny": false, "mode: plan": false, "": false} {
		s, err := Parse(map[string][]byte{OwnFile: []byte(text)}, nil)
		if err != nil || s.WorkspaceInstructions != want {
			t.Errorf("%q: %v, %v", text, s.WorkspaceInstructions, err)
		}
	}
}
