package holdfast_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestOutsideModule builds and tests a module outside of the repository, which uses the
// public packages alone: a tool that runs a command in the box, one that acts elsewhere, a
// driver that keeps the contract of drivers, a hook and a policy.
func TestOutsideModule(t *testing.T) {
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(root, "testdata", "outside")
	work := filepath.Join(t.TempDir(), "go.work")
	if err := os.WriteFile(work, []byte("go 1.26.0\n\nuse (\n\t"+outside+"\n\t"+root+"\n)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"vet", "./..."}, {"test", "-count=1", "./..."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = outside
		cmd.Env = append(os.Environ(), "GOWORK="+work, "GOFLAGS=-trimpath", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", args[0], err, out)
		}
	}
}
