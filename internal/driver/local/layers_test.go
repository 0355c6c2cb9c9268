//go:build linux

package local_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// layered runs a script inside of layers.
func layered(t *testing.T, b *sandbox.Box, script string, layers ...sandbox.Layer) (wire.ExecResult, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	ctx = sandbox.Layered(ctx, func() ([]sandbox.Layer, error) { return layers, nil })
	var out bytes.Buffer
	call := newCall(t)
	res, err := b.Exec(ctx, call, wire.ExecRequest{Shell: script, Merge: true}, sandbox.ExecOptions{Stdout: &out})
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	b.Release(call.ID)
	return res, strings.TrimSpace(out.String())
}

// layerBox is a box with the directories a and b, on a kernel that enforces layers.
func layerBox(t *testing.T, name string, opts ...option) (*local.Driver, sandbox.Spec, *sandbox.Box) {
	t.Helper()
	dir := home(t)
	d := open(t, dir, opts...)
	if !capable(t, d, "landlock") || !capable(t, d, "signal-scope") {
		t.Skip("SKIPPED LOUDLY: no Landlock with scopes here")
	}
	s := spec(dir, name)
	b := box(t, d, s)
	sh(t, b, "mkdir a a/x a/y b; for f in a/f a/x/f b/f home; do echo secret > $f; done; ln -s b tob")
	install(t, b)
	return d, s, b
}

var (
	writesA = sandbox.Layer{Write: []string{"/workspace/a"}}
	onlyA   = sandbox.Layer{Read: []string{"/workspace/a/"}, Write: []string{"/workspace/a"}}
	onlyB   = sandbox.Layer{Read: []string{"/workspace/b"}, Write: []string{"/workspace/b"}}
	readsA  = sandbox.Layer{Read: []string{"/workspace/a"}}
)

// TestAnyLayersHold: the kernel restricts a command to the lists of its agent, whatever
// its text says, and allows everything they allow.
func TestAnyLayersHold(t *testing.T) {
	_, _, b := layerBox(t, "layers")
	works := func(script string, layers ...sandbox.Layer) {
		t.Helper()
		if res, out := layered(t, b, "cd a; "+script, layers...); res.Class != holdfast.ExitOK {
			t.Errorf("%+v: %s: %+v %s", layers, script, res, out)
		}
	}
	refused := func(script string, layers ...sandbox.Layer) {
		t.Helper()
		res, out := layered(t, b, "cd a; "+script, layers...)
		if res.Class == holdfast.ExitOK || !strings.Contains(out, "Permission denied") && !strings.Contains(out, "cross-device") {
			t.Errorf("%+v: %s: %+v %s", layers, script, res, out)
		}
	}
	system := "cat <<<here >/dev/null && ls /usr/bin >/dev/null && echo x > /tmp/x && cat /tmp/x && echo y > /dev/shm/y && cat /etc/passwd /proc/self/status >/dev/null && python3 -c 1"
	for _, l := range []sandbox.Layer{writesA, onlyA, readsA} {
		works(system, l)
		works("cat f x/f && echo more >> f && : > f && truncate -s 3 f && echo secret > f && ls -la . x >/dev/null", l)
		works("mkdir d && echo z > d/n && mv d/n x/n && ln x/n y/n && mv x/n d/ && rm -r d y/n && mkfifo p && rm p", l)
	}
	for _, write := range []string{
		"echo more >> ../b/f", ": > ../b/f", "truncate -s 0 ../b/f", "truncate -s 0 /workspace/b/f", "rm ../b/f", "mv ../b/f .",
		"mv f ../b/", "ln ../b/f x/f2", "mkdir ../c", "touch ../b/new", "ln -s f ../l", "cp f /home/agent/f", "rm -r ../b",
		"truncate -s 0 /proc/self/cwd/../b/f", "cd ../tob; truncate -s 0 f", "python3 -c 'import os; os.truncate(\"/workspace/b/f\", 0)'",
	} {
		refused(write, writesA)
		refused(write, onlyA)
		refused(write, sandbox.Layer{Write: []string{"/workspace"}}, writesA)
		refused(write, writesA, sandbox.Layer{Write: []string{"/"}})
	}
	for _, read := range []string{
		"cat ../b/f", "cat ../tob/f", "cat /proc/self/cwd/../b/f", "ls ../b", "ls /workspace", "grep -r secret ../b", "cp ../b/f .",
		"cp /home/agent/../../workspace/b/f .", "bash ../b/f", "cat /proc/self/root/workspace/b/f",
	} {
		refused(read, readsA)
		refused(read, onlyA)
	}
	works("cat ../b/f && ls ..", writesA)
	works("echo b > ../b/written && rm ../b/written", readsA)
	// Nothing of the list exists, and neither magic links nor files lead around it.
	sh(t, b, "ln -s /proc/1/root magic; ln -s /proc/self/cwd here")
	nothing := sandbox.Layer{Write: []string{"/workspace/none", "/workspace/magic", "/workspace/here", "/workspace/home/x", "/proc/self/cwd", "/proc/1/cwd"}}
	refused("mkdir ../none", nothing)
	refused("echo x >> f", nothing)
	if got := sh(t, b, "cat b/f; ls b"); got != "secret\nf" {
		t.Errorf("b was changed: %q", got)
	}
}

// TestAnyLayersWhatIsDenied: a list with a path that leads to a denied one, by a link
// of the agent for example, is refused as a whole.
func TestAnyLayersWhatIsDenied(t *testing.T) {
	_, _, b := layerBox(t, "denied")
	for _, l := range []sandbox.Layer{
		{Write: []string{"/workspace/tob"}, Denied: []string{"/workspace/b"}},
		{Read: []string{"/workspace/a", "/workspace/tob"}, Denied: []string{"/workspace/b"}},
		{Read: []string{"/workspace"}, Denied: []string{"/workspace/b"}},
		{Write: []string{"/workspace/b"}, Denied: []string{"/workspace/tob"}},
		{Write: []string{"/workspace/tob"}, ReadOnly: []string{"/workspace/b"}},
	} {
		res, _ := layered(t, b, "touch ran", l)
		if res.Class != holdfast.ExitError || !strings.Contains(res.Message, "denied") || !strings.Contains(res.Message, "/workspace/b") {
			t.Errorf("%+v: %+v", l, res)
		}
	}
	if res, out := layered(t, b, "cat a/f", sandbox.Layer{Read: []string{"/workspace/a", "/workspace/tob"}, Write: []string{"/workspace/a"}, Denied: []string{"/workspace/c"}, ReadOnly: []string{"/workspace/b"}}); res.Class != holdfast.ExitOK {
		t.Errorf("%+v %s", res, out)
	}
	if got := sh(t, b, "ls -d ran 2>/dev/null || echo no"); got != "no" {
		t.Error("a refused command ran")
	}
}

// TestAnyLayersLieSideBySide: the next command of a set can end what the set started;
// no other set can end or enter it, and none reaches boxd.
func TestAnyLayersLieSideBySide(t *testing.T) {
	_, _, b := layerBox(t, "apart")
	server := "(trap '' HUP; exec sleep 1000) >/dev/null 2>&1 & echo $!"
	pids := map[string]string{}
	sets := map[string][]sandbox.Layer{"a": {onlyA}, "b": {onlyB}, "nested": {onlyA, onlyB}, "none": nil}
	for name, layers := range sets {
		res, out := layered(t, b, server, layers...)
		if res.Class != holdfast.ExitOK {
			t.Fatalf("%s: %+v %s", name, res, out)
		}
		pids[name] = out
	}
	boxdThreads := strings.Fields(sh(t, b, "ls /proc/1/task"))
	for name, layers := range sets {
		for other, pid := range pids {
			if other == name {
				continue
			}
			for _, script := range []string{"kill -0 " + pid, "kill " + pid, "kill -STOP " + pid} {
				if res, out := layered(t, b, script, layers...); res.Class == holdfast.ExitOK || !strings.Contains(out, "not permitted") {
					t.Errorf("%s of set %s in %s: %+v %s", script, other, name, res, out)
				}
			}
			for _, script := range []string{"ls /proc/PID/root/", "ls /proc/PID/cwd/", "cat /proc/PID/environ", "ls -l /proc/PID/fd/"} {
				script = strings.ReplaceAll(script, "PID", pid)
				if res, out := layered(t, b, script, layers...); res.Class == holdfast.ExitOK || !strings.Contains(out, "denied") {
					t.Errorf("%s of set %s in %s: %+v %s", script, other, name, res, out)
				}
			}
		}
		for _, tid := range boxdThreads {
			if res, out := layered(t, b, "kill -0 "+tid+"; kill -QUIT "+tid, layers...); res.Class == holdfast.ExitOK || strings.Count(out, "not permitted") != 2 {
				t.Errorf("thread %s of boxd in set %s: %+v %s", tid, name, res, out)
			}
		}
	}
	for name, layers := range sets {
		if res, out := layered(t, b, "kill "+pids[name], layers...); res.Class != holdfast.ExitOK {
			t.Errorf("a later command of set %s did not end what an earlier one started: %+v %s", name, res, out)
		}
	}
	// boxd can end processes of any set.
	call := newCall(t)
	ctx := sandbox.Layered(t.Context(), func() ([]sandbox.Layer, error) { return []sandbox.Layer{onlyB}, nil })
	started, done := make(chan struct{}), make(chan wire.ExecResult, 1)
	go func() {
		res, err := b.Exec(ctx, call, wire.ExecRequest{Shell: "setsid sleep 1000 & sleep 1000"}, sandbox.ExecOptions{Started: func(wire.Started) { close(started) }})
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	<-started
	if err := b.Kill(t.Context(), wire.KillRequest{Call: call.ID}); err != nil {
		t.Fatal(err)
	}
	if res := <-done; res.Class != holdfast.ExitCanceled {
		t.Errorf("%+v", res)
	}
	if got := sh(t, b, "ps -e 2>/dev/null | grep -c ' sleep' || true"); got != "0" {
		t.Errorf("%s sleepers are left", got)
	}
}

// TestAnyLayersNest: the threads of two sets each restrict themselves to the box's
// rules, and then to one layer after the other of their set.
func TestAnyLayersNest(t *testing.T) {
	_, _, b := layerBox(t, "nest")
	for want, layers := range [][]sandbox.Layer{1: nil, 2: {writesA}, 3: {writesA, {Write: []string{"/"}}}} {
		if want == 0 {
			continue
		}
		if _, out := layered(t, b, "./probe landlock-layers", layers...); out != fmt.Sprintf("ok %d", want) {
			t.Errorf("%+v: %q, want %d", layers, out, want)
		}
	}
	// A terminal is restricted like a command.
	ctx := sandbox.Layered(t.Context(), func() ([]sandbox.Layer, error) { return []sandbox.Layer{writesA}, nil })
	var out bytes.Buffer
	res, err := b.Exec(ctx, newCall(t), wire.ExecRequest{Shell: "echo x > /workspace/home", PTY: &wire.Size{Rows: 24, Cols: 80}}, sandbox.ExecOptions{Stdout: &out})
	if err != nil || res.Class == holdfast.ExitOK || !strings.Contains(out.String(), "Permission denied") {
		t.Errorf("%+v %v %s", res, err, out.String())
	}
	// Layers are not part of a call: rules may change before it is issued again.
	again := newCall(t)
	for _, layers := range [][]sandbox.Layer{{writesA}, nil, {onlyB}} {
		ctx := sandbox.Layered(t.Context(), func() ([]sandbox.Layer, error) { return layers, nil })
		if res, err := b.Exec(ctx, again, wire.ExecRequest{Shell: "echo once >> /workspace/a/count"}, sandbox.ExecOptions{}); err != nil || res.Class != holdfast.ExitOK {
			t.Errorf("%+v: %+v %v", layers, res, err)
		}
	}
	if got := sh(t, b, "cat a/count"); got != "once" {
		t.Errorf("a call ran more than once: %q", got)
	}
	broken := sandbox.Layered(t.Context(), func() ([]sandbox.Layer, error) {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "x", "nobody knows")
	})
	if res, err := b.Exec(broken, again, wire.ExecRequest{Shell: "echo once >> /workspace/a/count"}, sandbox.ExecOptions{}); err != nil || res.Class != holdfast.ExitOK {
		t.Errorf("without an answer, of a call that ran before: %+v %v", res, err)
	}
	if _, err := b.Exec(broken, newCall(t), wire.ExecRequest{Shell: "touch ran"}, sandbox.ExecOptions{}); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Errorf("without an answer: %v", err)
	}
	bad := sandbox.Layered(t.Context(), func() ([]sandbox.Layer, error) { return []sandbox.Layer{{Read: []string{"rel"}}}, nil })
	if _, err := b.Exec(bad, newCall(t), wire.ExecRequest{Shell: "touch ran"}, sandbox.ExecOptions{}); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("a relative path: %v", err)
	}
	if got := sh(t, b, "ls -d ran 2>/dev/null || echo no"); got != "no" {
		t.Error("a refused command ran")
	}
}

// TestCgroupV2Layers: there a set's thread was made before the capabilities were
// dropped. A set too many is refused, like anywhere.
func TestCgroupV2Layers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user has no unified hierarchy to write to")
	}
	_, _, b := layerBox(t, "unified", bestEffort, cgroupRoot(unified(t)))
	for n := range 9 {
		res, out := layered(t, b, "cat /proc/self/cgroup; echo x > a/f", sandbox.Layer{Write: []string{fmt.Sprint("/workspace/b/", n), "/workspace/a"}})
		if n == 8 {
			if res.Class != holdfast.ExitError {
				t.Errorf("the ninth set: %+v", res)
			}
			break
		}
		if res.Class != holdfast.ExitOK || !strings.Contains(out, "0::/work") {
			t.Errorf("set %d: %+v %s", n, res, out)
		}
	}
	if res, out := layered(t, b, "echo x > b/f", sandbox.Layer{Write: []string{"/workspace/b/0", "/workspace/a"}}); res.Class == holdfast.ExitOK {
		t.Errorf("%+v %s", res, out)
	}
}

// TestAnyNinthSet: a box keeps eight sets; a command of a ninth does not run.
func TestAnyNinthSet(t *testing.T) {
	_, _, b := layerBox(t, "ninth")
	set := func(n int) sandbox.Layer {
		return sandbox.Layer{Write: []string{fmt.Sprintf("/workspace/b/%d/", n), "/workspace/a"}}
	}
	for round := range 2 {
		for n := range 8 {
			l := set(n)
			if round > 0 { // the same set in another form
				l.Write = []string{"/workspace/a", l.Write[0], "/workspace/./a"}
			}
			if res, out := layered(t, b, "echo x > a/f", l); res.Class != holdfast.ExitOK {
				t.Fatalf("set %d: %+v %s", n, res, out)
			}
		}
		res, _ := layered(t, b, "touch a/ran", set(8))
		if res.Class != holdfast.ExitError || !strings.Contains(res.Message, "path rules of 8 agents") || !strings.Contains(res.Message, "holdfast containers stop ID") {
			t.Errorf("the ninth set: %+v", res)
		}
	}
	if got := sh(t, b, "ls -d a/ran 2>/dev/null || echo no"); got != "no" {
		t.Error("the command of the ninth set ran")
	}
}

// TestHZ10_FrozenBoxWithLayers: closing the gate takes all forking threads out of the
// work leaf, not just one of them.
func TestHZ10_FrozenBoxWithLayers(t *testing.T) {
	d, s, b := layerBox(t, "frozen")
	if !capable(t, d, "freeze") {
		t.Skip("no freezer here")
	}
	for _, l := range []sandbox.Layer{writesA, onlyB, onlyA} {
		if res, out := layered(t, b, "true", l); res.Class != holdfast.ExitOK {
			t.Fatalf("%+v %s", res, out)
		}
	}
	sh(t, b, "true")
	for range 2 {
		if err := b.Gate(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if err := d.Freeze(t.Context(), s.Box); err != nil {
			t.Fatal(err)
		}
		noThreadFrozen(t, d, s.Box)
		// A garbage collection stops every thread of boxd; a frozen one never answers.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		for range 200 {
			if _, err := b.Stats(ctx); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		if err := d.Thaw(t.Context(), s.Box); err != nil {
			t.Fatal(err)
		}
		if err := b.Gate(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if res, out := layered(t, b, "true", writesA); res.Class != holdfast.ExitOK {
			t.Fatalf("%+v %s", res, out)
		}
	}
}
