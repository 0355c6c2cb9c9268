package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestImage: a file system lives as long as its mount, and a file that exists stays as it is.
func TestImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: only root can mount a disk image")
	}
	const size = 16 << 20
	file, dir := filepath.Join(t.TempDir(), "disk.img"), filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { return Make(file, size) },
		func() error { return Reserve(file, size) },
		func() error { return Mount(file, dir, "noauto_da_alloc") },
		func() error { return os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o600) },
		func() error { return Unmount(dir) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("after the unmount: %v, %v", names, err)
	}
	if err := Make(file, size); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("Make of a file that exists: %v", err)
	}
	if err := Mount(filepath.Join(dir, "none"), dir); !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), "none") {
		t.Errorf("a mount of nothing: %v", err)
	}
}
