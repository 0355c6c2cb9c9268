//go:build linux

package boxproc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// roleEnv makes the test binary play boxd: the package under test starts it.
const roleEnv = "BOXPROC_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "":
		goleak.VerifyTestMain(m)
	case "boxd":
		os.Exit(playBoxd())
	case "deaf":
		<-time.After(time.Hour) // without a timer the runtime would end it
	case "dies":
		fmt.Fprintln(os.Stderr, "no such feature")
		os.Exit(3)
	case "reaper":
		os.Exit(playReaper())
	case "server":
		os.Exit(playServer())
	}
}

// playBoxd reads its configuration and says its box's name to each connection.
// Without a configuration it ends, as the real one does.
func playBoxd() int {
	c, err := wire.NewControl(wire.ControlFD).Config()
	if err != nil {
		return 4
	}
	l, err := net.FileListener(os.NewFile(uintptr(c.Listener), "listener"))
	if err != nil {
		return 5
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return 6
		}
		fmt.Fprintln(conn, c.Box)
		conn.Close()
	}
}

// playServer starts a boxd and is killed between record and configuration.
func playServer() int {
	d, err := boxproc.Open(os.Getenv("BOXPROC_DIR"), owner)
	if err != nil {
		return 1
	}
	l := launch("boxd")
	l.Placed = func(int) error {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	_, _, _ = d.Start(context.Background(), boxproc.Record{Box: box}, l)
	return 1
}

const (
	box = holdfast.BoxID("w-demo")
	// owner is the id of the directories of these tests.
	owner = "0123456789abcdef"
)

func launch(role string) boxproc.Launch {
	return boxproc.Launch{
		Path: "/proc/self/exe", Argv: []string{"boxd"}, Env: []string{roleEnv + "=" + role},
		Prepare: prepare(), Now: time.Unix(1000, 0).UTC(),
	}
}

// prepare makes a configuration with the given environment of tools.
func prepare(env ...string) func(*boxproc.Record, *boxproc.Handover) error {
	return func(_ *boxproc.Record, h *boxproc.Handover) error {
		h.Config = wire.Config{Box: string(box), Env: env}
		return nil
	}
}

func open(t *testing.T) *boxproc.Dir {
	t.Helper()
	d, err := boxproc.Open(t.TempDir(), owner)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func alive(t *testing.T, d *boxproc.Dir, r boxproc.Record) bool {
	t.Helper()
	is, err := d.Alive(r)
	if err != nil {
		t.Fatal(err)
	}
	return is
}

func start(t *testing.T, d *boxproc.Dir) (*boxproc.Boot, boxproc.Record) {
	t.Helper()
	p, r, err := d.Start(t.Context(), boxproc.Record{Box: box}, launch("boxd"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(context.Background()); err != nil {
			t.Error(err)
		}
		p.Close()
	})
	return p, r
}

func speak(t *testing.T, d *boxproc.Dir) string {
	t.Helper()
	c, err := d.Dial(t.Context(), box)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestStartHandsOverConfigAndSocket(t *testing.T) {
	d := open(t)
	p, r := start(t, d)
	if got := speak(t, d); got != "w-demo\n" {
		t.Fatalf("boxd said %q", got)
	}
	if !alive(t, d, r) || r.PID != p.PID() {
		t.Fatalf("record %+v is not alive", r)
	}
	stored, err := d.Read(box)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.PID, stored.PID); diff != "" {
		t.Fatal(diff)
	}
}

func TestFindHoldsTheSameProcess(t *testing.T) {
	d := open(t)
	p, r := start(t, d)
	again, err := d.Find(r)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.PID() != p.PID() {
		t.Fatalf("found %d, started %d", again.PID(), p.PID())
	}
	if err := again.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if alive(t, d, r) {
		t.Fatal("a killed process counts as alive")
	}
	if _, err := d.Find(r); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Fatalf("find after the end: %v", err)
	}
	if err := again.Signal(syscall.SIGKILL); err != nil {
		t.Fatalf("signal to an ended process: %v", err)
	}
}

func TestReusedPIDIsNoBox(t *testing.T) {
	d := open(t)
	_, r := start(t, d)
	for name, change := range map[string]func(*boxproc.Record){
		"other start":  func(r *boxproc.Record) { r.Start++ },
		"other kernel": func(r *boxproc.Record) { r.Kernel = "x" },
		"no pid":       func(r *boxproc.Record) { r.PID = 0 },
	} {
		c := r
		change(&c)
		if alive(t, d, c) {
			t.Errorf("%s: alive", name)
		}
		if _, err := d.Find(c); !holdfast.IsKind(err, holdfast.KindNotFound) {
			t.Errorf("%s: find: %v", name, err)
		}
	}
}

func TestCloseLetsTheProcessLive(t *testing.T) {
	d := open(t)
	_, r := start(t, d)
	p, err := d.Find(r)
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	p.Close()
	select {
	case <-p.Done():
		t.Fatal("done without an end")
	default:
	}
	if !alive(t, d, r) {
		t.Fatal("close ended the process")
	}
}

func TestFailedStartLeavesNothing(t *testing.T) {
	boom := errors.New("no cgroup")
	cases := map[string]func(*boxproc.Launch){
		"no binary": func(l *boxproc.Launch) { l.Path = "/does/not/exist" },
		"placing fails": func(l *boxproc.Launch) {
			l.Placed = func(int) error { return boom }
		},
		"preparing fails": func(l *boxproc.Launch) {
			l.Prepare = func(*boxproc.Record, *boxproc.Handover) error {
				return holdfast.Errorf(holdfast.KindUnavailable, "test", "%w", boom)
			}
		},
		"dies before it reads": func(l *boxproc.Launch) {
			l.Env = []string{roleEnv + "=dies"}
			// Larger than a socket takes: the write must notice the death.
			l.Prepare = prepare(strings.Repeat("x", 1<<20))
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			l := launch("boxd")
			change(&l)
			_, r, err := d.Start(t.Context(), boxproc.Record{Box: box}, l)
			if !holdfast.IsKind(err, holdfast.KindUnavailable) {
				t.Fatalf("error %v", err)
			}
			if alive(t, d, r) {
				t.Fatal("a process is left")
			}
			if _, err := os.Stat(d.Socket(box)); !os.IsNotExist(err) {
				t.Fatalf("the socket is left: %v", err)
			}
			if stored, err := d.Read(box); err == nil && stored.PID != 0 {
				t.Fatalf("record left: %+v", stored)
			}
		})
	}
}

func TestStartEndsWithContext(t *testing.T) {
	d := open(t)
	l := launch("deaf")
	l.Prepare = prepare(strings.Repeat("x", 1<<20))
	ctx, cancel := context.WithCancel(t.Context())
	l.Placed = func(int) error { cancel(); return nil }
	_, r, err := d.Start(ctx, boxproc.Record{Box: box}, l)
	if err == nil || alive(t, d, r) {
		t.Fatalf("err %v, alive %v", err, alive(t, d, r))
	}
}

// WS-P20.
func TestErrorQuotesWhatBoxdSaid(t *testing.T) {
	d := open(t)
	l := launch("dies")
	l.Prepare = prepare(strings.Repeat("x", 1<<20))
	_, _, err := d.Start(t.Context(), boxproc.Record{Box: box}, l)
	if err == nil || !strings.Contains(err.Error(), "no such feature") {
		t.Fatalf("error %v", err)
	}
}

// A server killed between record and configuration leaves a boxd that ends.
func TestKilledStarterLeavesNoBoxd(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{roleEnv + "=server", "BOXPROC_DIR=" + dir}
	if err := cmd.Run(); err == nil {
		t.Fatal("the starter was to be killed")
	}
	d, err := boxproc.Open(dir, owner)
	if err != nil {
		t.Fatal(err)
	}
	r, err := d.Read(box)
	if err != nil {
		t.Fatalf("no record: %v", err)
	}
	p, err := d.Find(r)
	if err != nil {
		return
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := p.Wait(ctx); err != nil {
		_ = p.Signal(syscall.SIGKILL)
		t.Fatal(err)
	}
}

// HZ-16: a data directory may be deeper than a socket address is long.
func TestHZ16_LongSocketPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 100), strings.Repeat("e", 100))
	d, err := boxproc.Open(dir, owner)
	if err != nil {
		t.Fatal(err)
	}
	start(t, d)
	if got := speak(t, d); got != "w-demo\n" {
		t.Fatalf("boxd said %q", got)
	}
}

func TestDialWithoutBoxIsNotFound(t *testing.T) {
	d := open(t)
	if _, err := d.Dial(t.Context(), box); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Fatalf("dial: %v", err)
	}
	p, _ := start(t, d)
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Dial(t.Context(), box); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Fatalf("dial to an ended box: %v", err)
	}
}

func TestRecords(t *testing.T) {
	d := open(t)
	want := boxproc.Record{
		Box: "w-a", Owner: d.Owner(), PID: 12, Start: 7, Kernel: "k", StartedAt: time.Unix(5, 0).UTC(),
		Missing: []string{"cgroup: none"}, Extra: map[string]string{"cgroup": "/x"},
	}
	if err := d.Write(want); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(boxproc.Record{Box: "w-b"}); err != nil {
		t.Fatal(err)
	}
	again, err := boxproc.Open(d.Path(), owner)
	if err != nil {
		t.Fatal(err)
	}
	if again.Owner() != d.Owner() {
		t.Fatal("the owner id changed")
	}
	got, err := again.List()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]boxproc.Record{want, {Box: "w-b", Owner: d.Owner()}}, got); diff != "" {
		t.Fatal(diff)
	}
	if err := again.Ended("w-a"); err != nil {
		t.Fatal(err)
	}
	r, err := again.Read("w-a")
	if err != nil || r.PID != 0 || r.Extra["cgroup"] != "/x" {
		t.Fatalf("after the end: %+v, %v", r, err)
	}
	for range 2 {
		if err := again.Delete("w-a"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := again.Read("w-a"); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Fatalf("read after delete: %v", err)
	}
}

func TestSweepRemovesOnlyStrays(t *testing.T) {
	d := open(t)
	start(t, d)
	strays := []string{"1234.tmp", boxproc.Key("w-gone") + ".sock", boxproc.Key("w-gone") + ".log"}
	for _, name := range strays {
		if err := os.WriteFile(filepath.Join(d.Path(), name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Sweep(0); err != nil {
		t.Fatal(err)
	}
	for _, name := range strays {
		if _, err := os.Stat(filepath.Join(d.Path(), name)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
	if got := speak(t, d); got != "w-demo\n" {
		t.Fatalf("boxd said %q", got)
	}
}

func TestBadOwnerIsRefused(t *testing.T) {
	_, err := boxproc.Open(t.TempDir(), "../../etc")
	if err == nil || !strings.Contains(err.Error(), `"../../etc"`) || holdfast.HintOf(err) == "" {
		t.Fatalf("error %v", err)
	}
}

func TestBearersAreFoundByEnvironment(t *testing.T) {
	entry := fmt.Sprintf("BOXPROC_MARK=%d-%d", os.Getpid(), time.Now().UnixNano())
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{roleEnv + "=deaf", entry}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The kernel shows the new environment of a process a moment after its exec.
	testkit.Eventually(t, "the process is found", func() bool {
		got, err := boxproc.Bearers(entry)
		return err == nil && cmp.Equal(got, []int{cmd.Process.Pid})
	})
	if got, _ := boxproc.Bearers(entry[:len(entry)-1]); len(got) != 0 {
		t.Errorf("a prefix of the entry found %v", got)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if got, _ := boxproc.Bearers(entry); len(got) != 0 {
		t.Errorf("after its end: %v", got)
	}
}

func TestLocks(t *testing.T) {
	var l boxproc.Locks
	unlock, err := l.Lock(t.Context(), "w-a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Lock(t.Context(), "w-b")
	if err != nil {
		t.Fatal(err)
	}
	other()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Lock(ctx, "w-a"); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Fatalf("lock with an ended context: %v", err)
	}
	got := make(chan func())
	go func() {
		u, err := l.Lock(context.Background(), "w-a")
		if err != nil {
			t.Error(err)
		}
		got <- u
	}()
	select {
	case <-got:
		t.Fatal("two holders")
	default:
	}
	unlock()
	(<-got)()
}
