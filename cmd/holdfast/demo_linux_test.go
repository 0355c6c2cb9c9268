package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/child"
	"github.com/holdfast-run/holdfast/internal/demo"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestDemoWithTheRealCLI: the demo with Claude Code in the box, offline, within its
// minute; without the CLI it says how to get it.
func TestDemoWithTheRealCLI(t *testing.T) {
	home := testkit.BaseDir(t)
	vars := map[string]string{"HOLDFAST_HOME": home}
	code, out, errs := runCLI(t, vars, "", "demo", "--runtime", "claude")
	if code != 6 || out != "" || !strings.Contains(errs, "hint: holdfast runtime install claude") {
		t.Errorf("without the CLI: %d %q %q", code, out, errs)
	}
	runtimes := testkit.Runtimes(t, "claude")
	if err := child.Lend(runtimes, home); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, vars, "demo", "--runtime", "claude", "--json", "--dir", testkit.BaseDir(t))
	began := time.Now()
	raw, err := cmd.Output()
	var res demo.Result
	if jerr := json.Unmarshal(raw, &res); err != nil || jerr != nil || !res.OK {
		t.Fatalf("%v %v: %s", err, jerr, raw)
	}
	tiers := ""
	for _, s := range res.Steps {
		if strings.Contains(s.Name, "receipts") {
			tiers = s.Detail
		}
	}
	for _, want := range []string{"tier fresh, 0 of 0", "tier native, 1 of 1", "tier live, 3 of 3"} {
		if !strings.Contains(tiers, want) {
			t.Errorf("no %q in the receipts:\n%s", want, tiers)
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %s", took)
	}
}

// command is the program in a process of its own, which can start itself.
func command(t *testing.T, vars map[string]string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("holdfast", args...)
	cmd.Env = cmd.Environ()
	for k, v := range vars {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	return cmd
}
