package boots_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/boots"
	"github.com/holdfast-run/holdfast/internal/image"
)

// TestHereDiffersAfterEachMount: a disk that was taken away and came back, without a boot, counts as a power cut.
// A directory that is mounted at another place, as for a new container, does not.
func TestHereDiffersAfterEachMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: only root can mount a disk image")
	}
	dir := t.TempDir()
	file, at, other := filepath.Join(dir, "image"), filepath.Join(dir, "disk"), filepath.Join(dir, "other")
	for _, d := range []string{at, other} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := image.Make(file, 64<<20); err != nil {
		t.Fatal(err)
	}
	here := func(dir string) string {
		t.Helper()
		text := boots.Here(dir, slog.Default())
		if !strings.Contains(text, ", mount ") {
			t.Fatalf("%q", text)
		}
		return text
	}
	seen := map[string]bool{}
	for range 3 {
		if err := image.Mount(file, at); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(at, other, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		first := here(at)
		if again := here(other); again != first {
			t.Errorf("%q, and at another place %q", first, again)
		}
		if seen[first] {
			t.Errorf("%q again after a new mount", first)
		}
		seen[first] = true
		for _, d := range []string{other, at} {
			if err := image.Unmount(d); err != nil {
				t.Fatal(err)
			}
		}
	}
}
