package db

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
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

// brittle mounts a disk whose writes fail behind the file system's back: an ext4 on a loop device whose own file, in the
// directory below, cannot grow any more. Space is free as far as ext4 knows; the fsync fails.
func brittle(t *testing.T) (below, dir string) {
	t.Helper()
	below, dir = tmpfs(t, "8m"), t.TempDir()
	img := filepath.Join(below, "img")
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
	return below, dir
}

// TestHZ17_FailedFsync has a disk that fails under a checkpoint or a commit.
func TestHZ17_FailedFsync(t *testing.T) {
	_, dir := brittle(t)
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

// TestHZ17_FailedFsyncAfterADeletion has a disk that fails under the checkpoint that removes deleted data from the log. The
// first failure ends all writes: no warning comes before.
func TestHZ17_FailedFsyncAfterADeletion(t *testing.T) {
	below, dir := brittle(t)
	failed := make(chan error, 2)
	var deleted atomic.Bool
	n := openNotes(t, Config{
		Path: filepath.Join(dir, "holdfast.db"), CheckpointBytes: 1 << 20, Failed: func(err error) { failed <- err },
	}, Cleaner{
		Purge: func(context.Context) (bool, error) { return deleted.Load(), nil },
		Wipe:  func(context.Context) error { return nil },
	})
	const last = 10
	for i := range last { // well below the size at which another checkpoint is due
		if err := n.write(t.Context(), i+1, strings.Repeat("x", 20_000), false); err != nil {
			t.Fatal(err)
		}
	}
	unix.Sync() // the blocks of the log can still be written, those of the database cannot
	fillDisk(t, below)
	deleted.Store(true)
	n.Tidy()
	select {
	case err := <-failed:
		if err != n.Healthy() || len(failed) != 0 {
			t.Errorf("the server heard of %v, and of %d more; health: %v", err, len(failed), n.Healthy())
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the server does not hear of the failed fsync")
	}
	n.refuses(t, last)
	_ = n.Close()
}
