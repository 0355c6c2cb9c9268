//go:build linux

package jail

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// proving is a jail whose threads are about to prove that they cannot make dangerous files in a directory.
func proving(t *testing.T) *entry {
	t.Helper()
	const tool = 61_234
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	j := wire.Jail{ToolUID: tool, RootTree: true}
	f := confined(t, j, none())
	if err := os.Chown(dir, tool, tool); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
			t.Errorf("the proof left %v, %v", list, err)
		}
	})
	return &entry{cfg: &wire.Config{Workspace: dir, Tmp: dir, Jail: &j}, jail: &j, forker: f}
}

// TestHZ8_ProofOfModes: the proof holds for the filters of a box, and it does not hold if the filter of the thread that
// forks or of the threads for files lets calls pass: then a box with a tree of root's does not start.
func TestHZ8_ProofOfModes(t *testing.T) {
	e := proving(t)
	if err := e.proveModes(); err != nil || !slices.Contains(e.inForce, "no-special-modes") {
		t.Fatalf("%v, in force %q", err, e.inForce)
	}
	e.jail.RootTree, e.inForce = false, nil
	if err := e.proveModes(); err != nil || len(e.inForce) > 0 {
		t.Errorf("without a tree of root's: %v, in force %q", err, e.inForce)
	}
	for name, program := range map[string]*[]unix.SockFilter{"tools": &seccompProgramClone3, "files": &seccompProgramFiles} {
		t.Run(name, func(t *testing.T) {
			whole := *program
			t.Cleanup(func() { *program = whole })
			*program = []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
			e := proving(t)
			if err := e.proveModes(); !holdfast.IsKind(err, holdfast.KindUnavailable) || len(e.inForce) > 0 {
				t.Errorf("with a filter that lets every call pass: %v, in force %q", err, e.inForce)
			}
		})
	}
}
