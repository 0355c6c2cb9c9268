package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/agentcli"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestRuntimeCommands: a CLI that is missing is named with the command that installs
// it; one that is installed runs by the path that is printed.
//
// WS-R90.
func TestRuntimeCommands(t *testing.T) {
	empty := t.TempDir()
	code, _, errs := runCLI(t, nil, "", "runtime", "path", "node", "--data", empty)
	if code != holdfast.KindUnavailable.ExitCode() || !strings.Contains(errs, "hint: holdfast runtime install node") {
		t.Errorf("%d %q", code, errs)
	}
	if code, _, errs = runCLI(t, nil, "", "runtime", "path", "nodee", "--data", empty); code != holdfast.KindNotFound.ExitCode() || !strings.Contains(errs, "claude-code-acp") {
		t.Errorf("%d %q", code, errs)
	}
	fresh := filepath.Join(empty, "data")
	if code, _, _ := runCLI(t, map[string]string{"npm_config_registry": "http://127.0.0.1:1"}, "", "runtime", "install", "node", "--data", fresh); code == 0 {
		t.Error("installed out of nothing")
	}
	if info, err := os.Stat(fresh); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the data directory is open to others: %v %v", info, err)
	}
	data := filepath.Dir(testkit.Runtimes(t, "node"))
	var installed struct{ Installed []agentcli.Installed }
	code, out, errs := runCLI(t, nil, "", "runtime", "install", "node", "--data", data, "--json")
	if err := json.Unmarshal([]byte(out), &installed); err != nil || code != 0 || len(installed.Installed) != 1 {
		t.Fatalf("%d %q %q %v", code, out, errs, err)
	}
	if code, out, errs = runCLI(t, nil, "", "runtime", "list", "--data", data); code != 0 || !strings.Contains(out, installed.Installed[0].Version) {
		t.Errorf("%d %q %q", code, out, errs)
	}
	code, out, errs = runCLI(t, nil, "", "runtime", "path", "node", "--data", data)
	if code != 0 {
		t.Fatal(errs)
	}
	if v, err := exec.Command(strings.TrimSpace(out), "--version").Output(); err != nil || strings.TrimSpace(string(v)) != "v"+installed.Installed[0].Version {
		t.Errorf("%s %v", v, err)
	}
}
