//go:build linux

package local_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/sandboxtest/escape"
)

var update = flag.Bool("update", false, "write docs/security/escapes.md from this run")

// rowsEnv is where a run as the ordinary user leaves its rows.
const rowsEnv = "LOCAL_TEST_ESCAPE_ROWS"

func escapeConfig(t *testing.T) escape.Config {
	dir := home(t)
	cfg := escape.Config{
		New:   func(t *testing.T) (sandbox.Driver, string) { return open(t, dir, withRootTrees), dir },
		Spec:  func(_ *testing.T, _ sandbox.Driver, name string) sandbox.Spec { return spec(dir, name) },
		Probe: probe(t), Outside: outside(t),
	}
	if os.Geteuid() == 0 {
		cfg.RootTree = func(t *testing.T, _ sandbox.Driver, name string) sandbox.Spec { return rootTree(t, dir, name) }
	}
	return cfg
}

// TestI16_Escapes: no attempt of the escape suite succeeds, as root and as an
// ordinary user, and docs/security/escapes.md says what this run saw (ASH-25,
// ASH-26, ASH-27, and HZ-8 in its attempts to leave setuid files).
func TestI16_Escapes(t *testing.T) {
	t.Parallel() // with TestHZ16_OrdinaryUser: together they take most of make test
	if path := os.Getenv(rowsEnv); path != "" {
		b, err := json.Marshal(escape.Run(t, escapeConfig(t)))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	table := filepath.Join(testkit.Root(), "docs", "security", "escapes.md")
	if os.Geteuid() != 0 {
		escape.Check(t, table, "local, ordinary user", escape.Run(t, escapeConfig(t)), *update)
		return
	}
	escape.Check(t, table, "local, root", escape.Run(t, escapeConfig(t)), *update)
	var rows []escape.Row
	t.Run("ordinary user", func(t *testing.T) {
		var path string
		testkit.AsUser(t, "^TestI16_Escapes$", withProbe(t), func(c *exec.Cmd) {
			path = filepath.Join(c.Dir, "rows.json")
			c.Env = append(c.Env, rowsEnv+"="+path)
		})
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &rows); err != nil {
			t.Fatal(err)
		}
		escape.Controls(t, escapeConfig(t), rows)
	})
	escape.Check(t, table, "local, ordinary user", rows, *update)
}

// outside is a directory of the host that no box may reach.
func outside(t *testing.T) string {
	t.Helper()
	if _, ok := testkit.IsUser(); !ok {
		return testkit.BaseDir(t)
	}
	dir := home(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
