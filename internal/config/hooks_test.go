package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
)

// TestSDKH31_HooksInTheConfiguration: hooks are a tree in the file; what makes no
// sense is refused by name.
func TestSDKH31_HooksInTheConfiguration(t *testing.T) {
	want := Hooks{
		hook.PreToolUse: {{Matcher: "Bash", Hooks: []hook.Entry{{Type: "command", Command: "audit", Timeout: 5000, FailClosed: true}}}},
		hook.Stop:       {{Hooks: []hook.Entry{{Type: "http", URL: "https://h/x", SecretFile: "/s"}}}},
	}
	file := write(t, `
hooks:
  preToolUse:
    - matcher: Bash
      hooks:
        - {type: command, command: audit, timeout: 5000, fail_closed: true}
  stop:
    - hooks: [{type: http, url: "https://h/x", secret_file: /s}]
`)
	home := lookup("HOME", "/h")
	c, err := Load(Source{File: file, Getenv: home})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, c.Hooks); d != "" {
		t.Error(d)
	}
	for text, part := range map[string]string{
		"hooks:\n  onError: []\n":                                                    "onError",
		"hooks:\n  stop: [{hooks: [{type: command, comand: x}]}]\n":                  "comand",
		"hooks:\n  stop: [{hooks: [{type: command}]}]\n":                             "hooks.stop[0].hooks[0].command",
		"hooks:\n  stop: [{matcher: \"(\", hooks: [{type: command, command: x}]}]\n": "matcher",
		"hooks: [x]\n": "hooks",
		"hooks: x\n":   "hooks",
	} {
		_, err := Load(Source{File: write(t, text), Getenv: home})
		if !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error()+holdfast.HintOf(err), part) {
			t.Errorf("%s: %v (%s), want %s", text, err, holdfast.HintOf(err), part)
		}
	}
}
