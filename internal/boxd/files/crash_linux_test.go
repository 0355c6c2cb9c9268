package files

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// again runs tests of this binary in a process of its own, with a directory.
func again(t *testing.T, bin, run, dir string, uid uint32) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin, "-test.run", run, "-test.v")
	cmd.Env = []string{"FILES_TEST_DIR=" + dir, "TMPDIR=" + dir, "PATH=/usr/bin:/bin"}
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	return cmd
}

// TestWriteSurvivesSIGKILL: whenever a writer is killed, the file holds one of
// its contents whole.
func TestWriteSurvivesSIGKILL(t *testing.T) {
	const size = 300_000
	if dir := os.Getenv("FILES_TEST_DIR"); dir != "" {
		b := New(Config{Workspace: dir, Home: dir})
		for i := 0; ; i++ {
			content := bytes.Repeat([]byte{byte('a' + i%26)}, size)
			if _, err := b.Write(wire.WriteRequest{Path: "f"}, bytes.NewReader(content)); err != nil {
				t.Fatal(err)
			}
		}
	}
	self, err := os.Executable()
	must(t, err)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "f"), bytes.Repeat([]byte{'-'}, size), 0o644))
	for range 15 {
		cmd := again(t, self, "^TestWriteSurvivesSIGKILL$", dir, 0)
		var st, now unix.Stat_t
		must(t, unix.Stat(filepath.Join(dir, "f"), &st))
		must(t, cmd.Start())
		for end := time.Now().Add(30 * time.Second); now.Ino == 0 || now.Ino == st.Ino; pause(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the writer does not write")
			}
			must(t, unix.Stat(filepath.Join(dir, "f"), &now))
		}
		pause(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		data, err := os.ReadFile(filepath.Join(dir, "f"))
		must(t, err)
		if len(data) != size || bytes.Count(data, data[:1]) != size {
			t.Fatalf("after a kill the file has %d bytes, %d of them %q", len(data), bytes.Count(data, data[:1]), data[0])
		}
	}
}

// pause lets the other process get on: how far does not matter.
func pause(d time.Duration) { <-time.NewTimer(d).C }

// TestWriteFullDisk: without room the old content stays and nothing is left.
func TestWriteFullDisk(t *testing.T) {
	b := newBox(t)
	if err := unix.Mount("tmpfs", b.ws, "tmpfs", 0, "size=256k"); err != nil {
		t.Logf("no right to mount here, nothing tested: %v", err)
		return
	}
	defer func() { _ = unix.Unmount(b.ws, unix.MNT_DETACH) }()
	b.put(t, "f", "old")
	_, err := b.Write(wire.WriteRequest{Path: "f"}, io.LimitReader(zeros{}, 1<<20))
	wantKind(t, err, holdfast.KindTooLarge, "no space left")
	if got := b.get(t, "f"); got != "old" {
		t.Errorf("content %q", got)
	}
	b.clean(t)
	b.put(t, "g", strings.Repeat("x", 100<<10))
	_, err = b.Edit(wire.EditRequest{Path: "g", Old: "x", New: "yy", All: true})
	wantKind(t, err, holdfast.KindTooLarge, "no space left")
	if got := b.get(t, "g"); len(got) != 100<<10 || got[0] != 'x' {
		t.Errorf("%d bytes after an edit without room", len(got))
	}
	b.clean(t)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestWriteKeepsOwner: a file of somebody else stays his.
func TestWriteKeepsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only root can give files away, nothing tested")
		return
	}
	b := newBox(t)
	must(t, os.Chown(b.put(t, "f", "old"), 60_001, 60_002))
	b.write(t, wire.WriteRequest{Path: "f"}, "new")
	var st unix.Stat_t
	must(t, unix.Stat(b.path("f"), &st))
	if st.Uid != 60_001 || st.Gid != 60_002 {
		t.Errorf("the file belongs to %d:%d now", st.Uid, st.Gid)
	}
}

// TestUnreadableIsPassedOver: a search goes on past what it may not read.
func TestUnreadableIsPassedOver(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root reads everything: TestAsOrdinaryUser runs this")
		return
	}
	b := newBox(t)
	b.put(t, "a/f", "needle")
	b.put(t, "closed/f", "needle")
	must(t, os.Chmod(b.put(t, "secret", "needle"), 0))
	must(t, os.Chmod(b.path("closed"), 0))
	defer func() { _ = os.Chmod(b.path("closed"), 0o755) }()
	if got := b.grep(t, wire.GrepRequest{Pattern: "needle"}); got != "a/f" {
		t.Errorf("grep: %q", got)
	}
	g, err := b.Glob(wire.GlobRequest{Pattern: "**/f"})
	must(t, err)
	if b.rel(g.Paths) != "a/f" {
		t.Errorf("glob: %q", g.Paths)
	}
	_, err = b.Grep(wire.GrepRequest{Pattern: "needle", Path: "secret"})
	wantKind(t, err, holdfast.KindDenied, `"secret"`)
	_, err = b.List(wire.ListRequest{Path: "closed"})
	wantKind(t, err, holdfast.KindDenied, `"closed"`)
	_, err = b.Write(wire.WriteRequest{Path: "closed/g"}, strings.NewReader("x"))
	wantKind(t, err, holdfast.KindDenied, `"closed/g"`)
	_, err = b.Write(wire.WriteRequest{Path: "/etc/hf-test"}, strings.NewReader("x"))
	wantKind(t, err, holdfast.KindDenied, `"/etc/hf-test"`)
}

// TestAsOrdinaryUser runs as another user what root cannot be refused.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("already an ordinary user: the tests themselves did it")
		return
	}
	base, err := os.MkdirTemp("/tmp", "hf-files")
	must(t, err)
	defer os.RemoveAll(base)
	must(t, os.Chmod(base, 0o777))
	self, err := os.Executable()
	must(t, err)
	data, err := os.ReadFile(self)
	must(t, err)
	bin := filepath.Join(base, "test")
	must(t, os.WriteFile(bin, data, 0o755))
	out, err := again(t, bin, "^(TestUnreadableIsPassedOver|TestWriteRespectsReadOnly|TestRemove|TestEdit)$", base, 60_001).CombinedOutput()
	if err != nil || strings.Count(string(out), "--- PASS: Test") < 4 || strings.Contains(string(out), "root") {
		t.Errorf("as another user: %v\n%s", err, out)
	}
}
