//go:build linux

package app_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// fewFiles is a directory on a disk of its own, with room for a few thousand files.
func fewFiles(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: a disk with few inodes is mounted as root only")
	}
	base := testkit.BaseDir(t)
	image, dir := filepath.Join(base, "disk.img"), filepath.Join(base, "disk")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1 << 30); err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", "-N", "60000", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("SKIPPED LOUDLY: %v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	return data
}

// TestASH27_EmptyFilesOfOneSession: with the default limits, on a disk with few inodes,
// a session that makes empty files is stopped again and again, and another session's
// box still starts and writes.
func TestASH27_EmptyFilesOfOneSession(t *testing.T) {
	cfg := settings(t, "local")
	cfg.Data = fewFiles(t)
	c, _ := serve(t, cfg)
	free := func() (left, all uint64) {
		var st unix.Statfs_t
		if err := unix.Statfs(cfg.Data, &st); err != nil {
			t.Fatal(err)
		}
		return st.Ffree, st.Files
	}
	id := newSession(t, c, "untrusted")
	for i := range 2 {
		testkit.Eventually(t, "the box starts again", func() bool {
			_, err := c.Exec(t.Context(), id, holdfast.ExecRequest{Command: "true", TimeoutMS: 30_000})
			if err != nil && !strings.Contains(err.Error(), "more files than the disk has room for") {
				t.Fatal(err)
			}
			return err == nil
		})
		bash(t, c, id, "mkdir -p d && cd d && seq -f '"+strings.Repeat("x", i+1)+"%g' 100000 | xargs touch")
		testkit.Eventually(t, "box.stopped", func() bool {
			stops := logged[holdfast.BoxEnded](t, c, id, holdfast.EventBoxStopped)
			return len(stops) > i && strings.Contains(stops[i].Reason, "more files")
		})
		left, all := free()
		t.Logf("life %d: %d of %d inodes are left", i, left, all)
		if left < all/20 {
			t.Fatalf("%d of %d inodes are left, which is less than the reserve", left, all)
		}
	}
	other := newSession(t, c, "untrusted")
	if end := bash(t, c, other, "touch a b c && echo fine > d"); end.Result != "done" {
		t.Errorf("another session: %+v", end)
	}
	if res, out := run(t, c, other, "cat d"); res.Class != holdfast.ExitOK || out != "fine\n" {
		t.Errorf("another session: %s %q", res.Class, out)
	}
}
