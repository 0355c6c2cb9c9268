package hook_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
)

// TestSDKH31_Config: hooks as data, appended to those that are there; what is not
// known is refused by name.
func TestSDKH31_Config(t *testing.T) {
	const good = `{
		"preToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "audit", "timeout": 5000, "fail_closed": true}, {"type": "http", "url": "https://h/x"}]}],
		"stop": [{"hooks": [{"type": "command", "command": "format", "where": "box"}]}]
	}`
	c, err := hook.ParseConfig([]byte(good), hook.OnHost)
	if err != nil {
		t.Fatal(err)
	}
	r := one(t, hook.Definition{Command: "first"})
	if err := r.Load(c, hook.OnHost); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, h := range append(r.Hooks(bashCall), r.Hooks(hook.Input{Event: hook.Stop})...) {
		names = append(names, string(h.Where())+":"+h.Name())
	}
	if d := cmp.Diff([]string{"host:first", "host:audit", "http:https://h/x", "box:format"}, names); d != "" {
		t.Error(d)
	}
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var again hook.Config
	if err := json.Unmarshal(raw, &again); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(c, again); d != "" {
		t.Error(d)
	}
	for said, part := range map[string]string{
		`{"onError":[]}`:                                          `hooks.onError`,
		`{"PreToolUse":[]}`:                                       `hooks.PreToolUse`,
		`{"stop":[{"hook":[]}]}`:                                  `unknown field "hook"`,
		`{"stop":[{"hooks":[{"type":"x"}]}]}`:                     `hooks.stop[0].hooks[0].type`,
		`{"stop":[{"hooks":[{"type":"command"}]}]}`:               `hooks.stop[0].hooks[0].command`,
		`{"stop":[{"hooks":[{"tipe":"x"}]}]}`:                     `unknown field "tipe"`,
		`{"stop":[{"hooks":[{"type":"http"}]}]}`:                  `hooks[0].url`,
		`{"stop":{}}`:                                             `hooks.stop`,
		`[]`:                                                      `hooks`,
		`{"stop":[{"matcher":"(","hooks":[` + cmd(``) + `]}]}`:    `hooks.stop[0].hooks[0].matcher`,
		`{"stop":[{"hooks":[` + cmd(`,"timeout":0.5`) + `]}]}`:    `timeout`,
		`{"stop":[{"hooks":[` + cmd(`,"timeout":-1`) + `]}]}`:     `timeout`,
		`{"stop":[{"hooks":[` + cmd(`,"where":"moon"`) + `]}]}`:   `where`,
		`{"stop":[{"hooks":[` + cmd(`,"url":"http://h"`) + `]}]}`: `command`,
	} {
		if _, err := hook.ParseConfig([]byte(said), hook.OnHost); !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, want %s", said, err, part)
		}
	}
	before := len(r.Hooks(hook.Input{Event: hook.Stop}))
	bad := hook.Config{hook.Stop: {{Hooks: []hook.Entry{{Type: "command", Command: "a"}, {Type: "command"}}}}}
	if err := r.Load(bad, hook.OnHost); err == nil || len(r.Hooks(hook.Input{Event: hook.Stop})) != before {
		t.Errorf("half of a configuration was registered: %v", err)
	}
}

func cmd(more string) string { return `{"type":"command","command":"c"` + more + `}` }

// TestAgentsHooksStayInTheBox: what comes with an agent runs nowhere else (HZ-6).
func TestAgentsHooksStayInTheBox(t *testing.T) {
	c, err := hook.ParseSettings([]byte(`{"PreToolUse":[{"matcher":"Bash","hooks":[{"type":"command","command":"c","timeout":60}]}],"Stop":[{"hooks":[` + cmd("") + `]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := c[hook.PreToolUse][0].Hooks[0].Timeout; got != 60_000 {
		t.Errorf("60 seconds are %g ms", got)
	}
	r := new(hook.Registry)
	if err := r.Load(c, hook.InBox); err != nil {
		t.Fatal(err)
	}
	for _, h := range r.Hooks(bashCall) {
		if h.Where() != hook.InBox {
			t.Errorf("%s runs on %s", h.Name(), h.Where())
		}
	}
	for said, part := range map[string]string{
		`{"Stop":[{"hooks":[` + cmd(`,"where":"host"`) + `]}]}`:    "where",
		`{"Stop":[{"hooks":[{"type":"http","url":"http://h/"}]}]}`: "type",
		`{"Stop":[{"hooks":[{"type":"prompt","prompt":"x"}]}]}`:    `unknown field "prompt"`,
		`{"Stopp":[]}`:          "hooks.Stopp",
		`{"Stop":[],"stop":[]}`: "twice",
	} {
		if _, err := hook.ParseSettings([]byte(said)); !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, want %s", said, err, part)
		}
	}
}
