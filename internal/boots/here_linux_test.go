package boots_test

import (
	"log/slog"
	"os"
	"os/exec"
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
	const own = "BOOTS_OWN_MOUNTS"
	if os.Getenv(own) == "" {
		// A box that starts meanwhile, in another test, copies every mount that it sees, and so keeps a disk
		// mounted after its unmount here. Nobody else sees the mounts of another namespace.
		cmd := exec.CommandContext(t.Context(), "unshare", "-m", os.Args[0], "-test.run=^TestHereDiffersAfterEachMount$")
		cmd.Env = append(os.Environ(), own+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
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
