package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
)

// TestACPAgents: own agents are read from a file; what is wrong with one is named.
func TestACPAgents(t *testing.T) {
	want := ACPAgents{
		"mine": {Command: []string{"/usr/bin/mine", "--acp"}, Env: map[string]string{"BASE_URL": "{model_url}/v1"}, State: ".mine", Mode: "ask"},
		"b-2":  {Command: []string{"b"}},
	}
	file := write(t, `
acp:
  mine:
    command: [/usr/bin/mine, --acp]
    env: {BASE_URL: "{model_url}/v1"}
    state: .mine
    mode: ask
  b-2: {command: [b]}
`)
	got, err := Load(Source{File: file, Getenv: lookup("HOME", "/h")})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got.ACP); d != "" {
		t.Error(d)
	}
	for text, want := range map[string]string{
		`{"a":{}}`:                                            "no command",
		`{"a":{"command":[""]}}`:                              "no command",
		`{"A b":{"command":["x"]}}`:                           "cannot be the name",
		`{"opencode":{"command":["x"]}}`:                      "a built-in agent",
		`{"a":{"command":["x"],"stat":"y"}}`:                  "unknown field",
		`{"a":{"command":["x"],"state":"/y"}}`:                "below the home",
		`{"a":{"command":["x"],"state":"../y"}}`:              "below the home",
		`{"a":{"command":["x"],"env":{"1":""}}}`:              "a name that may not be set",
		`{"a":{"command":["x"],"env":{"HOLDFAST_TOKEN":""}}}`: "a name that may not be set",
		`[]`:  "write the ACP agents as {NAME",
		`yes`: "write the ACP agents as {NAME",
	} {
		_, err := Load(Source{File: write(t, "acp: "+text), Getenv: lookup("HOME", "/h")})
		if !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
