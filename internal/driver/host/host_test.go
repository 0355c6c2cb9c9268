//go:build linux

package host_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/internal/driver/host"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/boxd"
	"github.com/holdfast-run/holdfast/sandbox/sandboxtest"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dataDir is 0700, and the user's own.
func dataDir(t *testing.T) string {
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

func open(t *testing.T, home string) *host.Driver {
	t.Helper()
	program := testkit.Boxd(t)
	d, err := host.New(host.Config{
		Home: home, Boxd: boxd.File(program),
		Environ: os.Environ(), Now: time.Now, Owner: testkit.Owner(home),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func spec(home, name string) sandbox.Spec {
	return sandbox.Spec{Box: holdfast.BoxID("w-" + name), Dir: filepath.Join(home, "sessions", name)}
}

func TestConformance(t *testing.T) {
	homes := map[sandbox.Driver]string{}
	sandboxtest.Run(t, sandboxtest.Config{
		New: func(t *testing.T) sandbox.Driver {
			home := dataDir(t)
			d := open(t, home)
			homes[d] = home
			return d
		},
		Again: func(t *testing.T, d sandbox.Driver) sandbox.Driver { return open(t, homes[d]) },
		Spec: func(_ *testing.T, d sandbox.Driver, name string) sandbox.Spec {
			return spec(homes[d], name)
		},
		RealPrograms: true, Terminals: true,
	})
}

// HZ-16: an ordinary user needs nothing special.
func TestHZ16_OrdinaryUser(t *testing.T) {
	if _, ok := testkit.IsUser(); ok {
		t.Skip("already")
	}
	testkit.AsUser(t, "^Test(Conformance|HZ14_)")
}

func box(t *testing.T, d *host.Driver, s sandbox.Spec) *sandbox.Box {
	t.Helper()
	t.Cleanup(func() {
		if err := d.Remove(context.Background(), s.Box); err != nil {
			t.Error(err)
		}
	})
	if _, err := d.Ensure(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	conn, err := d.Connect(t.Context(), s.Box)
	if err != nil {
		t.Fatal(err)
	}
	b, err := sandbox.Dial(t.Context(), s.Box, conn, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func sh(t *testing.T, b *sandbox.Box, script string) string {
	t.Helper()
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out bytes.Buffer
	res, err := b.Exec(ctx, sandbox.Call{ID: holdfast.CallID(id)}, wire.ExecRequest{Shell: script}, sandbox.ExecOptions{Stdout: &out})
	if err != nil || res.Class != holdfast.ExitOK {
		t.Fatalf("%s: %+v, %v", script, res, err)
	}
	return strings.TrimSpace(out.String())
}

func TestProbeSaysWhatItMeans(t *testing.T) {
	home := dataDir(t)
	d := open(t, home)
	p := d.Probe(t.Context())
	if p.Isolates || !p.Usable {
		t.Fatalf("probe %+v", p)
	}
	said := false
	for _, c := range p.Capabilities {
		said = said || c.Name == "isolation" && !c.OK && strings.Contains(c.Detail, "everything your user can do")
	}
	if !said {
		t.Fatalf("it does not say what it means: %+v", p)
	}
	s := spec(home, "a")
	box(t, d, s)
	info, err := d.Ensure(t.Context(), s)
	if err != nil || !strings.Contains(strings.Join(info.Missing, "\n"), host.Meaning) {
		t.Fatalf("info %+v, %v", info, err)
	}
}

func TestProbeWithoutBoxd(t *testing.T) {
	why := holdfast.Errorf(holdfast.KindUnavailable, "image", "no boxd").WithHint("run make boxd")
	home := dataDir(t)
	d, err := host.New(host.Config{Home: home, Boxd: func() (boxd.Program, error) { return boxd.Program{}, why }, Now: time.Now, Owner: testkit.Owner(home)})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	p := d.Probe(t.Context())
	if p.Usable || !strings.Contains(p.Reason, "no boxd") || p.Hint != "run make boxd" {
		t.Fatalf("probe %+v", p)
	}
	if _, err := d.Ensure(t.Context(), spec(home, "a")); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Fatalf("ensure: %v", err)
	}
}

func TestBadConfigAndSpec(t *testing.T) {
	if _, err := host.New(host.Config{}); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Fatalf("empty configuration: %v", err)
	}
	home := dataDir(t)
	d := open(t, home)
	for name, s := range map[string]sandbox.Spec{
		"relative dir":       {Box: "w-a", Dir: "x"},
		"unclean dir":        {Box: "w-a", Dir: home + "/../x"},
		"relative workspace": {Box: "w-a", Dir: home, Workspace: "x"},
		"no id":              {Dir: home},
	} {
		if _, err := d.Ensure(t.Context(), s); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOwnWorkspaceIsUsedAsItIs(t *testing.T) {
	home := dataDir(t)
	d := open(t, home)
	s := spec(home, "a")
	s.Workspace = filepath.Join(home, "project")
	if os.Getuid() == 0 {
		s = ownTree(t, home) // a root server runs nothing in a workspace as itself
	}
	b := box(t, d, s)
	if got := sh(t, b, "pwd; echo made > file"); got != s.Workspace {
		t.Fatalf("pwd %q", got)
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "workspace")); !os.IsNotExist(err) {
		t.Fatalf("an unused workspace was made: %v", err)
	}
}

// HZ-14: trusted tools are the server's user, with a scrubbed environment.
func TestHZ14_EnvironmentIsTheAllowTable(t *testing.T) {
	home := dataDir(t)
	program := testkit.Boxd(t)
	d, err := host.New(host.Config{
		Home: home, Boxd: boxd.File(program), Now: time.Now, Owner: testkit.Owner(home),
		Environ: []string{
			"PATH=/usr/bin:/bin", "HOME=/root/x", "USER=me", "LANG=C", "LC_ALL=C", "TERM=dumb", "TZ=UTC", "TMPDIR=/x",
			"HOLDFAST_TOKEN=secret", "AWS_KEY=secret", "GOOGLE_X=secret", "MY_API_KEY=secret", "MY_TOKEN=secret", "OTHER=x", "broken",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	s := spec(home, "a")
	b := box(t, d, s)
	b.SetEnv([]string{"OWN=1", "TZ=CET"})
	got := map[string]string{}
	for _, line := range strings.Split(sh(t, b, "env"), "\n") {
		name, value, _ := strings.Cut(line, "=")
		got[name] = value
	}
	for name, want := range map[string]string{
		"PATH": "/usr/bin:/bin", "HOME": filepath.Join(s.Dir, "home"), "TMPDIR": filepath.Join(s.Dir, "tmp"),
		"USER": "me", "LANG": "C", "LC_ALL": "C", "TERM": "dumb", "TZ": "CET", "OWN": "1",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	for _, name := range []string{"HOLDFAST_TOKEN", "AWS_KEY", "GOOGLE_X", "MY_API_KEY", "MY_TOKEN", "OTHER", "broken"} {
		if v, ok := got[name]; ok {
			t.Errorf("%s=%s was passed on", name, v)
		}
	}
}

// escape starts a process that leaves its call, its session and its parent.
const escape = `setsid sh -c 'setsid sh -c "echo \$\$ > pid.tmp; mv pid.tmp pid; while true; do sleep 1; done" & sleep 600' > /dev/null 2>&1 &
while [ ! -f pid ]; do sleep 0.02; done; cat pid`

// escaped runs it. Whatever the driver does, nothing outlives the test.
func escaped(t *testing.T, b *sandbox.Box) (pid string) {
	t.Helper()
	pid = sh(t, b, escape)
	mark := sh(t, b, "env | grep ^HOLDFAST_BOX=")
	t.Cleanup(func() {
		if err := boxproc.KillBearers(context.Background(), mark); err != nil {
			t.Error(err)
		}
	})
	return pid
}

func gone(pid string) bool {
	b, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	return err != nil || strings.Contains(string(b), ") Z ")
}

// HZ-14: setsid children escape process groups, not the box.
func TestHZ14_StopEndsWhatEscaped(t *testing.T) {
	home := dataDir(t)
	d := open(t, home)
	s := spec(home, "a")
	pid := escaped(t, box(t, d, s))
	if gone(pid) {
		t.Fatal("it does not run")
	}
	if err := d.Stop(t.Context(), s.Box); err != nil {
		t.Fatal(err)
	}
	if !gone(pid) {
		t.Fatalf("process %s outlived its box", pid)
	}
}

// HZ-14: boxd is killed, and nobody asks for the box again: its processes end.
func TestHZ14_DeathOfBoxdEndsWhatEscaped(t *testing.T) {
	home := dataDir(t)
	d := open(t, home)
	s := spec(home, "a")
	pid := escaped(t, box(t, d, s))
	info, err := d.Ensure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(info.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the end of process "+pid, func() bool { return gone(pid) })
}

// HZ-14: boxd died while no server was there: the next one ends what is left.
func TestHZ14_NextServerEndsWhatIsLeft(t *testing.T) {
	home := dataDir(t)
	d := open(t, home)
	s := spec(home, "a")
	pid := escaped(t, box(t, d, s))
	info, err := d.Ensure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(info.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	next := open(t, home)
	testkit.Eventually(t, "the end of process "+pid, func() bool {
		// Its record goes with it, so that it may be listed no more.
		infos, err := next.List(t.Context())
		if err != nil || len(infos) > 1 {
			t.Fatalf("listed %+v, %v", infos, err)
		}
		return gone(pid) && (len(infos) == 0 || !infos[0].Running)
	})
}

// A process of another box, or of nobody, is never touched.
func TestStopLeavesOthersAlone(t *testing.T) {
	home := dataDir(t)
	d := open(t, home)
	a, b := spec(home, "a"), spec(home, "b")
	boxB := box(t, d, b)
	other := escaped(t, boxB)
	box(t, d, a)
	if err := d.Stop(t.Context(), a.Box); err != nil {
		t.Fatal(err)
	}
	if gone(other) {
		t.Fatal("the stop of one box ended a process of another")
	}
	sh(t, boxB, "true")
}

func TestStoppedBoxLeavesNoSocket(t *testing.T) {
	home := dataDir(t)
	d := open(t, home)
	s := spec(home, "a")
	box(t, d, s)
	sock := filepath.Join(home, "run", "host", boxproc.Key(s.Box)+".sock")
	if _, err := os.Stat(sock); err != nil {
		t.Fatal(err)
	}
	if err := d.Stop(t.Context(), s.Box); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(sock); !os.IsNotExist(err) {
		t.Fatalf("the socket is left: %v", err)
	}
	if err := d.Remove(t.Context(), s.Box); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Dir(sock))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if !strings.HasPrefix(e.Name(), "boxd-") {
			t.Errorf("%s is left", e.Name())
		}
	}
}

// TestToolsHaveUsualTimers: boxd's own are late.
func TestToolsHaveUsualTimers(t *testing.T) {
	dir := dataDir(t)
	d := open(t, dir)
	if got := sh(t, box(t, d, spec(dir, "timers")), "cat /proc/self/timerslack_ns"); got != "50000" {
		t.Errorf("a tool's timer slack is %q ns", got)
	}
}

// TestLayersAreTextOnly: a trusted box has no walls, so path rules of one agent are left
// to the policy, which judges the text of commands.
func TestLayersAreTextOnly(t *testing.T) {
	home := dataDir(t)
	b := box(t, open(t, home), spec(home, "layers"))
	ctx := sandbox.Layered(t.Context(), func() ([]sandbox.Layer, error) { return []sandbox.Layer{{Write: []string{"/nowhere"}}}, nil })
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	res, err := b.Exec(ctx, sandbox.Call{ID: holdfast.CallID(id)}, wire.ExecRequest{Shell: "echo x > written"}, sandbox.ExecOptions{})
	if err != nil || res.Class != holdfast.ExitOK {
		t.Errorf("%+v %v", res, err)
	}
}
