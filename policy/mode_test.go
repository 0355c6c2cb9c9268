package policy_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

// The whole table: every mode, every tool name.
func TestByModeTable(t *testing.T) {
	names := []string{"Read", "Glob", "Grep", "LS", "TodoWrite", "Write", "Edit", "Bash", "WebFetch", "WebSearch", "Task", "Nope", "read", ""}
	readOnly := map[string]bool{"Read": true, "Glob": true, "Grep": true, "LS": true, "Nope": true}
	allowed := map[holdfast.Mode]string{
		holdfast.ModeBypassPermissions: "Read Glob Grep LS TodoWrite Write Edit Bash WebFetch WebSearch Task",
		holdfast.ModeAcceptEdits:       "Read Glob Grep LS TodoWrite Write Edit",
		holdfast.ModeDefault:           "Read Glob Grep LS TodoWrite",
		holdfast.ModeAuto:              "Read Glob Grep LS TodoWrite",
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
			v, err := policy.ByMode{}.Decide(t.Context(), policy.Request{Session: "id", Mode: mode, Tool: n, ReadOnly: readOnly[n]})
			if err != nil {
				t.Fatal(err)
			}
			if v.Allow != want[n] || v.By != "mode" {
				t.Errorf("%q %q: %+v", mode, n, v)
			}
			if v.Allow != (v.Reason == "") {
				t.Errorf("%q %q: reason %q", mode, n, v.Reason)
			}
		}
	}
}

func TestByModeRefusesAReaderThatChanges(t *testing.T) {
	for _, mode := range []holdfast.Mode{holdfast.ModeBypassPermissions, holdfast.ModePlan} {
		v, _ := policy.ByMode{}.Decide(t.Context(), policy.Request{Mode: mode, Tool: "Read"})
		if v.Allow || !strings.Contains(v.Reason, `"Read"`) {
			t.Errorf("%s: %+v", mode, v)
		}
	}
}

func TestByModeSaysHowToAllow(t *testing.T) {
	v, _ := policy.ByMode{}.Decide(t.Context(), policy.Request{Session: "0198", Mode: holdfast.ModeDefault, Tool: "Bash"})
	if !strings.Contains(v.Reason, "holdfast session update 0198 --mode bypassPermissions") {
		t.Error(v.Reason)
	}
	v, _ = policy.ByMode{}.Decide(t.Context(), policy.Request{Mode: "yolo", Tool: "Bash"})
	if !strings.Contains(v.Reason, `"yolo"`) {
		t.Error(v.Reason)
	}
}
