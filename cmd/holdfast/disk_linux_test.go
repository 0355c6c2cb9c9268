package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// smallDisk mounts a small file system of its own until the test ends.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: mounting a small file system needs root")
	}
	dir := testkit.BaseDir(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755,size="+size); err != nil {
		t.Skipf("NOT RUN: cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { unmountAll(t, dir) })
	return dir
}

// unmountAll waits: a box that starts elsewhere has a copy of every mount for a moment.
func unmountAll(t *testing.T, dir string) {
	t.Helper()
	var err error
	defer func() {
		if err != nil {
			t.Errorf("unmount %s: %v", dir, err)
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	}()
	testkit.Eventually(t, "the disk is unmounted", func() bool {
		err = unix.Unmount(dir, 0)
		return err == nil || err != unix.EBUSY
	})
}

// failingDisk is an ext4 on a loop device whose own file cannot grow: it has space as
// far as the file system knows, and its writes fail.
//
// Once fail is called, no write reaches the disk.
func failingDisk(t *testing.T, room string) (dir string, fail func()) {
	t.Helper()
	below, dir := smallDisk(t, room), testkit.BaseDir(t)
	img := filepath.Join(below, "img")
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Skipf("NOT RUN: no loop device or ext4 here: %v %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("truncate", "-s", "256M", img)
	run("mkfs.ext4", "-q", "-O", "^has_journal", img)
	loop := run("losetup", "-f", "--show", img)
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "-d", loop).CombinedOutput(); err != nil {
			t.Errorf("losetup -d: %v %s", err, out)
		}
	})
	if err := unix.Mount(loop, dir, "ext4", 0, "errors=continue"); err != nil {
		t.Skipf("NOT RUN: cannot mount ext4: %v", err)
	}
	t.Cleanup(func() { unmountAll(t, dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, func() {
		t.Helper()
		if out, err := exec.Command("sh", "-c", "cat /dev/zero > "+filepath.Join(below, "fill")).CombinedOutput(); err == nil {
			t.Fatalf("the disk below is not full: %s", out)
		}
	}
}

// alive reports whether a process runs.
func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// TestHZ17_FailedDiskEndsTheServer: after a write that did not reach the disk the
// server ends with an exit code of its own, as after a crash: its box and the processes
// in it go on.
func TestHZ17_FailedDiskEndsTheServer(t *testing.T) {
	disk, fail := failingDisk(t, "64m")
	p := launch(t, filepath.Join(disk, "data"))
	id := p.session()
	out, err := p.Exec(t.Context(), id, holdfast.ExecRequest{Argv: []string{"sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"}})
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if err := json.Unmarshal(out.Stdout, &pid); err != nil {
		t.Fatalf("%+v: %v", out, err)
	}
	boxes, err := p.Containers(t.Context())
	if err != nil || len(boxes) != 1 || boxes[0].PID == 0 {
		t.Fatalf("%+v %v", boxes, err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(boxes[0].PID, syscall.SIGKILL)
		_ = syscall.Kill(pid, syscall.SIGKILL)
		testkit.Eventually(t, "the box ends", func() bool { return !alive(pid) })
	})
	fail()
	ended := func() bool {
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	}
	for n := 0; !ended() && n < 200_000; n++ {
		_, _ = p.CreateSession(t.Context(), holdfast.CreateSession{Title: strings.Repeat("title ", 30)}, "")
	}
	if ws := p.wait(); ws.ExitStatus() != exitDisk {
		t.Fatalf("the server ended with %d\n%s", ws.ExitStatus(), p.log.String())
	}
	if log := p.log.String(); !strings.Contains(log, "the disk failed") || !strings.Contains(log, "holdfast.db") {
		t.Errorf("the log does not say why:\n%s", log)
	}
	if !alive(pid) {
		t.Error("what ran in the box has ended with the server")
	}
}

// TestHZ17_FullDiskOfAServer: a tool fills a disk of 80 MB. Its outcome is recorded,
// and the same server accepts a message as soon as there is space.
func TestHZ17_FullDiskOfAServer(t *testing.T) {
	disk := smallDisk(t, "80m")
	p := launch(t, filepath.Join(disk, "data"), "--set", "disk_reserve=0")
	id := p.session()
	out, err := p.Exec(t.Context(), id, holdfast.ExecRequest{Argv: []string{"sh", "-c", "cat /dev/zero > fill; echo full"}})
	if err != nil || !strings.Contains(string(out.Stdout), "full") {
		t.Fatalf("%+v %v", out, err)
	}
	first := p.say(id, "hello on the full disk")
	if first.Status != holdfast.TurnCompleted {
		t.Errorf("a turn on the full disk: %+v", first)
	}
	acked := map[holdfast.TurnID]bool{first.ID: true}
	text := strings.Repeat("words ", 20_000)
	var refused, unready error
	for n := 0; n < 5000 && (unready == nil || !strings.Contains(unready.Error(), "new sessions")); n++ {
		sent, err := p.Send(t.Context(), id, holdfast.SendMessage{Text: text})
		if err == nil {
			acked[sent.Turn.ID] = true
			continue
		}
		refused = err
		_, unready = p.Ready(t.Context())
	}
	if !holdfast.IsKind(refused, holdfast.KindUnavailable) || !strings.Contains(refused.Error(), "is full") || !holdfast.IsKind(unready, holdfast.KindUnavailable) {
		t.Fatalf("after %d messages: %v, readyz %v", len(acked), refused, unready)
	}
	if err := os.Truncate(filepath.Join(p.data, "sessions", string(id), "workspace", "fill"), 0); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "a message is taken again", func() bool {
		sent, err := p.Send(t.Context(), id, holdfast.SendMessage{Text: "after it", Key: "after"})
		if err == nil {
			acked[sent.Turn.ID] = true
		}
		return err == nil
	})
	for turn := range acked {
		testkit.Eventually(t, "every turn ends", func() bool {
			got, err := p.Turn(t.Context(), id, turn)
			return err == nil && got.Status == holdfast.TurnCompleted
		})
	}
	seen := map[holdfast.TurnID]int{}
	seq := int64(0)
	for ev, err := range p.AllEvents(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if seq++; ev.Seq != seq {
			t.Fatalf("#%d where #%d was expected", ev.Seq, seq)
		}
		if ev.Type == holdfast.EventMessageUser {
			seen[ev.Turn]++
		}
	}
	for turn := range acked {
		if seen[turn] != 1 {
			t.Errorf("the message of turn %s is %d times in the log", turn, seen[turn])
		}
	}
	if len(seen) != len(acked) {
		t.Errorf("%d messages in the log, %d were acknowledged", len(seen), len(acked))
	}
	if log := p.log.String(); !strings.Contains(log, "the disk is full") || !strings.Contains(log, "free_bytes") || !strings.Contains(log, "has space again") {
		t.Errorf("the log says nothing of it:\n%s", log)
	}
	p.signal(syscall.SIGTERM) // ends the box as well
	p.wait()
}
