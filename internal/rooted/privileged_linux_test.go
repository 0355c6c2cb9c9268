package rooted_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/rooted"
)

// TestPrivileged: a file with capabilities counts as privileged; other files, and a symlink to such a file, do not.
func TestPrivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: only root gives files capabilities")
	}
	dir := t.TempDir()
	for _, name := range []string{"plain", "capable"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	raise := []byte("\x01\x00\x00\x02\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	if err := unix.Setxattr(filepath.Join(dir, "capable"), "security.capability", raise, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("capable", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	var found []string
	for e, err := range rooted.Walk(t.Context(), dir, rooted.Bounds{Entries: 10, Depth: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Depth == 0 {
			continue
		}
		yes, err := e.Privileged()
		if err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
		if yes {
			found = append(found, e.Name)
		}
	}
	if !slices.Equal(found, []string{"capable"}) {
		t.Errorf("found %q", found)
	}
}
