package db

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tmpfs mounts a small file system in memory.
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("NOT RUN: cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { unmount(t, dir) })
	return dir
}

// unmount waits: a box that starts elsewhere on the machine has, for a moment, a
// copy of every mount, and with it whatever they hold.
func unmount(t *testing.T, dir string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var err error
	for range 1000 {
		if err = unix.Unmount(dir, 0); err != unix.EBUSY {
			break
		}
		<-tick.C
	}
	if err != nil {
		t.Errorf("unmount %s: %v", dir, err)
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	}
}

// TestHZ17_FailedFsync has a disk whose writes fail behind the file system's
// back: an ext4 on a loop device whose own file cannot grow any more. Space is
// free as far as ext4 knows; the fsync fails.
func TestHZ17_FailedFsync(t *testing.T) {
	below := tmpfs(t, "8m")
	img, dir := filepath.Join(below, "img"), t.TempDir()
	run := func(name string, args ...string) (string, error) {
		out, err := exec.Command(name, args...).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	must := func(out string, err error) string {
		t.Helper()
		if err != nil {
			t.Skipf("NOT RUN: no loop device or ext4 here: %v %s", err, out)
		}
		return out
	}
	must(run("truncate", "-s", "64M", img))
	must(run("mkfs.ext4", "-q", "-O", "^has_journal", img))
	loop := must(run("losetup", "-f", "--show", img))
	t.Cleanup(func() {
		if out, err := run("losetup", "-d", loop); err != nil {
			t.Errorf("losetup -d: %v %s", err, out)
		}
	})
	if err := unix.Mount(loop, dir, "ext4", 0, "errors=continue"); err != nil {
		t.Skipf("NOT RUN: cannot mount ext4: %v", err)
	}
	t.Cleanup(func() { unmount(t, dir) })
	failed := make(chan error, 2)
	n := openNotes(t, Config{
		Path: filepath.Join(dir, "holdfast.db"), CheckpointBytes: 1 << 20, Warn: func(error) {},
		Failed: func(err error) { failed <- err },
	})
	last := grow(t, n, 0)
	if last < 20 {
		t.Fatalf("failed at #%d", last)
	}
	n.refuses(t, last)
	if err := n.Healthy(); !strings.Contains(err.Error(), "I/O") && !strings.Contains(err.Error(), "disk") {
		t.Errorf("the reason is not told: %v", err)
	}
	t.Logf("after #%d: %v", last, n.Healthy())
	if err := <-failed; err != n.Healthy() || len(failed) != 0 {
		t.Errorf("the server heard of %v, and of %d more", err, len(failed))
	}
	// What the page cache says now need not be on the disk; the promise is that
	// nothing later is acknowledged on top of it.
	_ = n.Close()
}
