package torture

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/image"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestCutHitsNobodyElse: a process in a mount namespace of its own has a copy of every
// mount, including the disk's, and lives on.
func TestCutHitsNobodyElse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: only root can mount a disk image")
	}
	d, err := newDisk(testkit.BaseDir(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := image.Unmount(d.mount()); err != nil {
			t.Error(err)
		}
	})
	if err := os.MkdirAll(filepath.Join(d.data(), "workspace"), 0o755); err != nil {
		t.Fatal(err)
	}
	begin := func(script string) int {
		cmd := exec.Command("unshare", "-m", "sh", "-c", "mount --make-rprivate / && "+script+" && echo ready && read x", d.data())
		out, err := cmd.StdoutPipe()
		if err == nil {
			_, err = cmd.StdinPipe()
		}
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		line := make([]byte, 6)
		if _, err := out.Read(line); err != nil || !strings.HasPrefix(string(line), "ready") {
			t.Fatalf("%q, %v", line, err)
		}
		return cmd.Process.Pid
	}
	stranger, box, server := begin("true"), begin(`mount --bind "$0/workspace" /mnt`), begin("true")
	dev, err := d.device()
	if err != nil {
		t.Fatal(err)
	}
	got := users(dev, server)
	if slices.Contains(got, stranger) || !slices.Contains(got, box) || !slices.Contains(got, server) {
		t.Errorf("users are %v: want the box %d and the server %d, not the stranger %d", got, box, server, stranger)
	}
}
