//go:build linux

package local_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/boxd"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// roleEnv makes the test binary play a server that is to be killed.
const roleEnv = "LOCAL_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(landlockEnv) == landlockOff {
		os.Exit(noLandlock())
	}
	if os.Getenv(roleEnv) == "server" {
		os.Exit(playServer())
	}
	goleak.VerifyTestMain(m)
}

// home is the data directory of a test: 0700, so that nobody but the server's
// user gets in. An ordinary user's lies in its own home.
func home(t *testing.T) string {
	t.Helper()
	if base, ok := testkit.IsUser(); ok {
		dir, err := os.MkdirTemp(base, "[h]")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		return dir
	}
	return t.TempDir()
}

type option func(*local.Config)

func bestEffort(c *local.Config) { c.LimitsMode = sandbox.LimitsBestEffort }

// open makes a driver on a data directory and checks at the end of the test that
// none of its boxes left anything.
func open(t *testing.T, dir string, opts ...option) *local.Driver {
	t.Helper()
	program := testkit.Boxd(t)
	cfg := local.Config{
		Home: dir, Boxd: boxd.File(program),
		Now: time.Now, Rand: rand.Reader, Owner: testkit.Owner(dir),
	}
	if os.Geteuid() != 0 {
		bestEffort(&cfg)
	}
	for _, o := range opts {
		o(&cfg)
	}
	d, err := local.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if left := leftovers(t, dir); len(left) > 0 {
			if !t.Failed() {
				t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
			}
			sweep(left)
		}
	})
	return d
}

var uids atomic.Uint32

// spec is a box with its own directory and its own two host uids.
func spec(dir, name string) sandbox.Spec {
	n := 2 * uids.Add(1)
	return sandbox.Spec{
		Box: holdfast.BoxID("w-" + name), Dir: filepath.Join(dir, "s", name),
		BoxdUID: 1_878_000_000 + n, ToolUID: 1_878_000_001 + n,
	}
}

// up starts a box that is removed with the test.
func up(t *testing.T, d *local.Driver, s sandbox.Spec) sandbox.Info {
	t.Helper()
	t.Cleanup(func() {
		if err := d.Remove(context.Background(), s.Box); err != nil {
			t.Error(err)
		}
	})
	info, err := d.Ensure(t.Context(), s)
	if err != nil {
		t.Fatalf("%v (hint: %s)", err, holdfast.HintOf(err))
	}
	return info
}

var tokens atomic.Uint64

func dial(t *testing.T, d *local.Driver, box holdfast.BoxID) *sandbox.Box {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := d.Connect(ctx, box)
	if err != nil {
		t.Fatal(err)
	}
	b, err := sandbox.Dial(ctx, box, conn, tokens.Add(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func box(t *testing.T, d *local.Driver, s sandbox.Spec) *sandbox.Box {
	t.Helper()
	up(t, d, s)
	return dial(t, d, s.Box)
}

func newCall(t *testing.T) sandbox.Call {
	t.Helper()
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Call{ID: holdfast.CallID(id)}
}

// try runs an exec to its end.
func try(t *testing.T, b *sandbox.Box, req wire.ExecRequest) (wire.ExecResult, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var out bytes.Buffer
	req.Merge = true
	call := newCall(t)
	res, err := b.Exec(ctx, call, req, sandbox.ExecOptions{Stdout: &out})
	if err != nil {
		t.Fatalf("%+v: %v", req, err)
	}
	b.Release(call.ID)
	return res, out.String()
}

// sh runs a script that has to end well.
func sh(t *testing.T, b *sandbox.Box, script string) string {
	t.Helper()
	res, out := try(t, b, wire.ExecRequest{Shell: script})
	if res.Class != holdfast.ExitOK {
		t.Fatalf("%s: %+v\n%s", script, res, out)
	}
	return strings.TrimSpace(out)
}

// begin starts an exec that goes on in the background until the box ends.
func begin(t *testing.T, b *sandbox.Box, script string) {
	t.Helper()
	started, done := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	call := newCall(t)
	go func() {
		defer close(done)
		_, _ = b.Exec(ctx, call, wire.ExecRequest{Shell: script}, sandbox.ExecOptions{Started: func(wire.Started) { close(started) }})
	}()
	t.Cleanup(func() { cancel(); <-done })
	select {
	case <-started:
	case <-done:
		t.Fatalf("%s did not start", script)
	}
}

// leftovers lists what boxes of a data directory left on this machine: processes,
// cgroups, mounts, sockets and records.
func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	var left []string
	run := filepath.Join(dir, "run", "local")
	name := "holdfast-" + testkit.Owner(dir)
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
		case d.Name() == name:
			left = append(left, "cgroup "+path)
			return fs.SkipDir
		case strings.HasPrefix(d.Name(), "holdfast-"): // of another server
			return fs.SkipDir
		}
		return nil
	})
	files, _ := os.ReadDir(run)
	for _, f := range files {
		if f.Name() != "ids" && !strings.HasPrefix(f.Name(), "boxd-") {
			left = append(left, "file "+f.Name())
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	if strings.Contains(string(mounts), dir) {
		left = append(left, "a mount of "+dir)
	}
	return append(left, processesOf(dir)...)
}

// sweep ends what leftovers found, so that a failed test harms no other.
func sweep(left []string) {
	slices.Sort(left)
	slices.Reverse(left) // processes before the cgroups they are in
	for _, l := range left {
		what, rest, _ := strings.Cut(l, " ")
		switch what {
		case "process":
			pid, _, _ := strings.Cut(rest, " ")
			if n, err := strconv.Atoi(pid); err == nil && n > 1 {
				_ = syscall.Kill(n, syscall.SIGKILL)
			}
		case "cgroup":
			var dirs []string
			_ = filepath.WalkDir(rest, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					_ = os.WriteFile(filepath.Join(path, "freezer.state"), []byte("THAWED"), 0)
					dirs = append(dirs, path)
				}
				return nil
			})
			for _, d := range slices.Backward(dirs) {
				for range 100 {
					if err := syscall.Rmdir(d); err != syscall.EBUSY {
						break
					}
					<-time.After(5 * time.Millisecond)
				}
			}
		}
	}
}

// processesOf lists the processes that run a boxd extracted below dir.
func processesOf(dir string) []string {
	var out []string
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, l := range links {
		if exe, err := os.Readlink(l); err == nil && strings.HasPrefix(exe, dir) {
			cmd, _ := os.ReadFile(filepath.Join(filepath.Dir(l), "cmdline"))
			out = append(out, fmt.Sprintf("process %s %q", filepath.Base(filepath.Dir(l)), cmd))
		}
	}
	return out
}

func wantKind(t *testing.T, err error, kind holdfast.Kind, hint bool) {
	t.Helper()
	if !holdfast.IsKind(err, kind) {
		t.Fatalf("%v is of kind %q, want %q", err, holdfast.KindOf(err), kind)
	}
	if hint && holdfast.HintOf(err) == "" {
		t.Fatalf("%v has no hint", err)
	}
}
