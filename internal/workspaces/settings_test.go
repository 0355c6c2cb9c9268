package workspaces_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestWSR27_LimitsAndRulesInTheFile: limits and permission rules are exported and imported as the other settings are; a key
// that is taken away is the server's again.
func TestWSR27_LimitsAndRulesInTheFile(t *testing.T) {
	h := open(t)
	h.create(t, "site", holdfast.WorkspaceSettings{
		Limits:      map[string]string{"memory": "2GiB", "cpus": "1.5"},
		Permissions: map[string][]string{"deny": {"Bash(rm *)", "Read(*)"}, "allow": {"Read"}},
	})
	want := "limits:\n  cpus: 1.5\n  memory: 2GiB\npermissions:\n  allow:\n  - Read\n  deny:\n  - \"Bash(rm *)\"\n  - \"Read(*)\"\n"
	if got := h.read(t, h.config("site")); !strings.HasSuffix(got, "\n"+want) {
		t.Errorf("exported: %q", got)
	}
	h.edit(t, "site", "  cpus: 1.5\n", "  cpus: 1\n  pids: 64\n")
	h.get(t, "site")
	h.edit(t, "site", "  - \"Read(*)\"\n", "")
	w := h.get(t, "site")
	if !reflect.DeepEqual(w.Limits, map[string]string{"memory": "2GiB", "cpus": "1", "pids": "64"}) ||
		!reflect.DeepEqual(w.Permissions, map[string][]string{"deny": {"Bash(rm *)"}, "allow": {"Read"}}) || w.Revision != 3 {
		t.Errorf("imported: %+v", w)
	}
	h.put(t, h.config("site"), "limits: {}\npermissions: {}\n")
	if w := h.get(t, "site"); w.Limits != nil || w.Permissions != nil || w.ConfigError != "" {
		t.Errorf("taken away: %+v", w)
	}
	h.restart(t)
	if w := h.get(t, "site"); w.Limits != nil || w.Permissions != nil || w.ConfigError != "" {
		t.Errorf("after a start: %+v", w)
	}
}
