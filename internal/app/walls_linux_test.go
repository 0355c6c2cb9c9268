package app_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
)

// The checks of isolation, against a whole server with boxes of the local driver.

const canary = "walls-canary"

func newSession(t *testing.T, c *client.Client, trust string) holdfast.SessionID {
	t.Helper()
	s, err := c.CreateSession(t.Context(), holdfast.CreateSession{Trust: trust, Mode: string(holdfast.ModeBypassPermissions)}, "")
	if err != nil {
		t.Fatal(err)
	}
	return s.ID
}

// run runs a command in a session's box.
func run(t *testing.T, c *client.Client, id holdfast.SessionID, command string) (holdfast.ExecResult, string) {
	t.Helper()
	res, err := c.Exec(t.Context(), id, holdfast.ExecRequest{Command: command, TimeoutMS: 30_000})
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return res, string(res.Stdout) + string(res.Stderr)
}

func put(t *testing.T, c *client.Client, id holdfast.SessionID, name, content string, mode uint32) {
	t.Helper()
	if _, err := c.WriteFile(t.Context(), id, name, strings.NewReader(content), mode); err != nil {
		t.Fatal(err)
	}
}

// logged are the events of a type.
func logged[T any](t *testing.T, c *client.Client, id holdfast.SessionID, typ holdfast.EventType) []T {
	t.Helper()
	var out []T
	for ev, err := range c.AllEvents(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == typ {
			var d T
			if err := ev.Decode(&d); err != nil {
				t.Fatal(err)
			}
			out = append(out, d)
		}
	}
	return out
}

// TestASH25_SessionsDoNotSeeEachOther: not the workspace, home, state, socket,
// temporary files or processes, by absolute and relative paths, symlinks and
// /proc, in commands and in the files API.
//
// WS-R72, WS-R77, WS-R79, WS-R118.
func TestASH25_SessionsDoNotSeeEachOther(t *testing.T) {
	cfg := settings(t, "local")
	c, _ := serve(t, cfg)
	mine, other := newSession(t, c, "untrusted"), newSession(t, c, "untrusted")
	put(t, c, other, "secret", canary, 0o644)
	if res, out := run(t, c, other, "cp secret /home/agent/secret; cp secret /tmp/secret; "+canary+"=1 exec -a "+canary+" sleep 600 > /dev/null 2>&1 & true"); res.Class != holdfast.ExitOK {
		t.Fatal(out)
	}
	put(t, c, mine, "own", "own", 0o644)
	dir := filepath.Join(cfg.Data, "sessions", string(other))
	for _, path := range []string{filepath.Join(dir, "workspace", "secret"), filepath.Join(dir, "home", "secret")} {
		// Without the wall the same path leads there.
		if b, err := os.ReadFile(path); err != nil || string(b) != canary {
			t.Fatalf("control: %q %v", b, err)
		}
		for _, command := range []string{
			"cat " + path, "cat " + strings.Repeat("../", 20) + path[1:], "ln -sfn " + path + " way && cat way", "ln " + path + " hard && cat hard",
			"cat /proc/1/root" + path, "cat /proc/*/root" + path, "cat /proc/*/cwd/secret", "echo broken > " + path, "rm " + path,
		} {
			if res, out := run(t, c, mine, command); res.Class == holdfast.ExitOK || strings.Contains(out, canary) {
				t.Errorf("%s: %s %s", command, res.Class, out)
			}
		}
		for _, name := range []string{path, strings.Repeat("../", 20) + path[1:], "way"} {
			if r, err := c.ReadFile(t.Context(), mine, name); err == nil {
				r.Close()
				t.Errorf("the files API reads %s", name)
			}
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != canary {
			t.Errorf("it was changed: %q %v", b, err)
		}
	}
	for what, command := range map[string]string{
		"its state":       "ls " + dir + "/state",
		"its socket":      "ls " + cfg.Data + "/run " + cfg.Data + "/run/*",
		"its /tmp":        "cat /tmp/secret",
		"its home":        "cat /home/agent/secret",
		"its processes":   "grep -l wall[s]-canary /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null",
		"any other files": "find / -xdev -name secret -not -path '/proc/*' 2>/dev/null | grep .",
	} {
		if res, out := run(t, c, mine, command); res.Class == holdfast.ExitOK {
			t.Errorf("%s: %s", what, out)
		}
	}
	if _, out := run(t, c, mine, "kill -9 -1; cat own"); !strings.Contains(out, "own") {
		// The shell itself may be among the killed.
		if _, out = run(t, c, mine, "cat own"); out != "own" {
			t.Errorf("own files: %q", out)
		}
	}
	if _, out := run(t, c, other, "pgrep -f "+canary+" > /dev/null && cat secret /tmp/secret"); out != canary+canary {
		t.Errorf("the other session was reached: %q", out)
	}
}

// TestASH26_NothingOfTheServer: no secret of its environment, only allowed names,
// and no way to its API, to loopback or to metadata addresses.
//
// DOC-31, DOC-32, WS-R47, WS-N15.
func TestASH26_NothingOfTheServer(t *testing.T) {
	for _, name := range []string{"HOLDFAST_TOKEN", "HOLDFAST_SNAPSHOT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_KEY", "OPENAI_API_KEY", "GITHUB_TOKEN", "PRIVATE"} {
		t.Setenv(name, canary)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := settings(t, "local")
	cfg.Listen = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	c, _ := serve(t, cfg)
	for _, trust := range []string{"untrusted", "trusted"} {
		id := newSession(t, c, trust)
		end := turn(t, c, id, `<script>[{"tool":"Bash","input":{"command":"env; cat /proc/self/environ | tr '\\0' '\\n'"}},{"say":"done"}]</script>`)
		if end.Result != "done" {
			t.Fatalf("%+v", end)
		}
		_, listed := run(t, c, id, "env")
		for _, f := range logged[holdfast.ToolFinished](t, c, id, holdfast.EventToolFinished) {
			listed += f.Content
		}
		if strings.Contains(listed, canary) || !strings.Contains(listed, "PATH=") {
			t.Errorf("%s: environment\n%s", trust, listed)
		}
		for line := range strings.Lines(listed) {
			name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
			switch name {
			case "HOME", "TMPDIR", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "_":
				continue
			case "HOLDFAST_SESSION", "HOLDFAST_RUNTIME":
				if value == string(id) || value == "native" {
					continue
				}
			}
			if ok && !sandbox.Inherits(name) && (name != "HOLDFAST_BOX" || trust == "untrusted") {
				t.Errorf("%s: %s", trust, line)
			}
		}
	}
	id := newSession(t, c, "untrusted")
	for what, at := range map[string]string{"the API": cfg.Listen, "a service on loopback": l.Addr().String(), "metadata": "169.254.169.254:80", "outside": "192.0.2.1:443"} {
		host, port, _ := net.SplitHostPort(at)
		res, out := run(t, c, id, fmt.Sprintf("exec 3<>/dev/tcp/%s/%s", host, port))
		if res.Class == holdfast.ExitOK || !strings.Contains(out, "refused") && !strings.Contains(out, "unreachable") {
			t.Errorf("%s: %s %s", what, res.Class, out)
		}
	}
	if res, _ := run(t, c, id, "cat /proc/*/environ | tr '\\0' '\\n' | grep "+canary+"x*$"); res.Class == holdfast.ExitOK {
		t.Error("a secret of the server is in /proc")
	}
}

// freePort is a port that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// limited is a server whose boxes are small.
func limited(t *testing.T) config.Config {
	cfg := settings(t, "local")
	cfg.Limits.Memory, cfg.Limits.Pids, cfg.Limits.Disk, cfg.Limits.Tmp = 96<<20, 48, 40<<20, 8<<20
	return cfg
}

// pollFast looks at the disk so often that a test need not wait.
func pollFast(o *app.Options) { o.DiskPoll = 20 * time.Millisecond }

// bash is a turn with one command.
func bash(t *testing.T, c *client.Client, id holdfast.SessionID, command string) holdfast.TurnEnded {
	t.Helper()
	return turn(t, c, id, fmt.Sprintf(`<script>[{"tool":"Bash","input":{"command":%q}},{"say":"done"}]</script>`, command))
}

// TestASH27_HogsAreContained: a memory hog, a fork bomb and a disk filler end as
// what they are, in events that tell out of memory from a kill, and the session
// goes on after each.
//
// WS-R65.
func TestASH27_HogsAreContained(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: only root has limits on every machine")
	}
	c, _, _ := serveWith(t, limited(t), pollFast)
	id, neighbour := newSession(t, c, "untrusted"), newSession(t, c, "untrusted")
	run(t, c, neighbour, "true")
	program, err := os.ReadFile(testkit.Program(t, "./sandbox/sandboxtest/escape/testdata/probe"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, c, id, "probe", string(program), 0o755)
	ooms := func() int { return len(logged[holdfast.BoxEnded](t, c, id, holdfast.EventBoxOOM)) }
	last := func() holdfast.ToolFinished {
		all := logged[holdfast.ToolFinished](t, c, id, holdfast.EventToolFinished)
		return all[len(all)-1]
	}
	bash(t, c, id, "kill -9 $$")
	if f := last(); f.Outcome != holdfast.ExitSignal || ooms() != 0 {
		t.Errorf("a kill is told as %+v, with %d box.oom", f, ooms())
	}
	bash(t, c, id, "exec ./probe gulp 300000000")
	if f := last(); f.Outcome != holdfast.ExitOOM {
		t.Errorf("a memory hog is told as %+v", f)
	}
	testkit.Eventually(t, "box.oom", func() bool { return ooms() == 1 })
	bash(t, c, id, "./probe forkbomb 120")
	if f := last(); !strings.Contains(f.Content, "EAGAIN") {
		t.Errorf("a fork bomb is told as %+v", f)
	}
	testkit.Eventually(t, "box.pids", func() bool {
		all := logged[holdfast.BoxEnded](t, c, id, holdfast.EventBoxPids)
		return len(all) > 0 && strings.Contains(all[0].Reason, "not started")
	})
	bash(t, c, id, "./probe fill big 1073741824 2")
	var stop holdfast.BoxEnded
	testkit.Eventually(t, "box.stopped", func() bool {
		for _, s := range logged[holdfast.BoxEnded](t, c, id, holdfast.EventBoxStopped) {
			stop = s
		}
		return strings.HasPrefix(stop.Reason, "disk: ")
	})
	if stop.OvershootBytes <= 0 {
		t.Errorf("the disk filler ended with %+v", stop)
	}
	// Resumable: the session goes on in a new box, on its files.
	if end := bash(t, c, id, "rm big; ls"); end.Result != "done" || !strings.Contains(last().Content, "probe") {
		t.Errorf("afterwards: %+v %+v", end, last())
	}
	if s, err := c.Session(t.Context(), id); err != nil || s.Status != holdfast.StatusActive {
		t.Errorf("the session is %+v, %v", s, err)
	}
	if n := len(logged[holdfast.BoxStarted](t, c, neighbour, holdfast.EventBoxStarted)); n != 1 {
		t.Errorf("the neighbour's box was started %d times", n)
	}
}

// TestASH27_FilesWithoutANameAreCounted: a file that was removed while it was open
// takes the disk all the same. Its box is stopped, which gives the room back, and
// the neighbour's goes on.
func TestASH27_FilesWithoutANameAreCounted(t *testing.T) {
	if _, ok := testkit.IsUser(); !ok {
		t.Run("ordinary user", func(t *testing.T) { testkit.AsUser(t, "^TestASH27_FilesWithoutAName") })
	}
	cfg := limited(t)
	if os.Geteuid() != 0 {
		cfg.Limits.Mode = sandbox.LimitsBestEffort
	}
	c, _, _ := serveWith(t, cfg, pollFast)
	id, neighbour := newSession(t, c, "untrusted"), newSession(t, c, "untrusted")
	run(t, c, neighbour, "true")
	bash(t, c, id, "exec 3>ghost; rm ghost; head -c 209715200 /dev/zero >&3; sleep 20")
	all := logged[holdfast.BoxEnded](t, c, id, holdfast.EventBoxStopped)
	if len(all) != 1 || !strings.HasPrefix(all[0].Reason, "disk: ") || all[0].OvershootBytes <= 0 {
		t.Errorf("the disk filler ended with %+v", all)
	}
	if _, out := run(t, c, neighbour, "echo here"); out != "here\n" {
		t.Errorf("the neighbour says %q", out)
	}
	if n := len(logged[holdfast.BoxStarted](t, c, neighbour, holdfast.EventBoxStarted)); n != 1 {
		t.Errorf("the neighbour's box was started %d times", n)
	}
}

// TestASH27_UserLimitsAreVerified: where limits are required and cannot be, no box
// starts, and the session says why. The checks that an ordinary user's server can
// pass run as one beside it.
//
// FH-47.
func TestASH27_UserLimitsAreVerified(t *testing.T) {
	if _, ok := testkit.IsUser(); !ok {
		t.Run("ordinary user", func(t *testing.T) { testkit.AsUser(t, "^TestASH(25|26|27_UserLimits)") })
		return
	}
	cfg := limited(t)
	cfg.Limits.Mode = sandbox.LimitsRequired
	c, _, _ := serveWith(t, cfg, pollFast)
	id := newSession(t, c, "untrusted")
	_, err := c.Exec(t.Context(), id, holdfast.ExecRequest{Command: "true"})
	if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), "limit") || holdfast.HintOf(err) == "" {
		t.Errorf("%v (hint: %s)", err, holdfast.HintOf(err))
	}
}
