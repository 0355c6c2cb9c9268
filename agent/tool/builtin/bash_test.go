package builtin

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func command(s string) string { return `{"command":` + quote(s) + `}` }

func TestBash(t *testing.T) {
	w := newWorld(t)
	for cmd, want := range map[string]string{
		"echo hello":               "hello\n",
		"true":                     "(no output)",
		"printf abc":               "abc",
		"echo out; echo err >&2":   "out\nerr\n",
		"echo x > f; cat f; rm f":  "x\n",
		"cd /; echo there":         "there\n",
		"printf 'é'; printf '\\n'": "é\n",
	} {
		if got := w.good("Bash", command(cmd)); got != want {
			t.Errorf("%s: %q, want %q", cmd, got, want)
		}
	}
	if got := w.good("Bash", `{"command":"echo hi","timeout":5000,"description":"says hi"}`); got != "hi\n" {
		t.Errorf("with every field: %q", got)
	}
	w.refused("Bash", `{"command":"a\u0000b"}`, "NUL")
	w.refused("Bash", `{"command":"true","timeout":600001}`, "from 1 to 600000")
}

func TestBashExitCode(t *testing.T) {
	w := newWorld(t)
	res, err := w.call("Bash", command("printf partial; exit 3"))
	if err != nil || res.IsError || res.Outcome != holdfast.ExitExit || res.ExitCode == nil || *res.ExitCode != 3 || res.Content != "partial\n[exit code 3]" {
		t.Errorf("exit 3: %+v (%v)", res, err)
	}
	res, err = w.call("Bash", command("exit 1"))
	if err != nil || res.Content != "[exit code 1]" {
		t.Errorf("exit 1: %+v (%v)", res, err)
	}
}

func TestBashSignal(t *testing.T) {
	w := newWorld(t)
	res, err := w.call("Bash", command("echo before; kill -9 $$"))
	if err != nil || !res.IsError || res.Outcome != holdfast.ExitSignal || res.ExitCode != nil || !strings.HasPrefix(res.Content, "before\n[ended by signal ") {
		t.Errorf("killed: %+v (%v)", res, err)
	}
}

func TestBashTimeout(t *testing.T) {
	w := newWorld(t)
	res, err := w.call("Bash", `{"command":"echo begun; sleep 100","timeout":300}`)
	if err != nil || !res.IsError || res.Outcome != holdfast.ExitTimeout || !strings.HasPrefix(res.Content, "begun\n[timed out after 300ms") {
		t.Errorf("timeout: %+v (%v)", res, err)
	}
}

func TestBashOutOfMemory(t *testing.T) {
	w := newWorld(t)
	done := make(chan struct{})
	var res tool.Result
	var err error
	go func() {
		defer close(done)
		res, err = w.call("Bash", command("echo begun; sleep 100"))
	}()
	w.eventually("the command runs", func() bool { return strings.Contains(w.shown(), "begun") })
	w.eventually("something is killed", func() bool { return w.drv.KillForMemory(w.id) })
	<-done
	if err != nil || !res.IsError || res.Outcome != holdfast.ExitOOM || !strings.Contains(res.Content, "ran out of memory") {
		t.Errorf("out of memory: %+v (%v)", res, err)
	}
}

// TestBashWords: every class is told in words.
func TestBashWords(t *testing.T) {
	req := wire.ExecRequest{TimeoutMS: 90_000}
	for _, c := range []struct {
		res  wire.ExecResult
		text string
		want string
	}{
		{wire.ExecResult{Class: holdfast.ExitTimeout, Code: -1}, "out", "out\n[timed out after 1m30s: everything it started was killed; give a longer timeout or run it in the background]"},
		{wire.ExecResult{Class: holdfast.ExitOOM, Code: 137, Message: "limit 4 GiB"}, "", "[killed because the sandbox ran out of memory: limit 4 GiB]"},
		{wire.ExecResult{Class: holdfast.ExitPids, Code: 254}, "", "[failed because the sandbox has no room for more processes]"},
		{wire.ExecResult{Class: holdfast.ExitError, Code: 127, Message: "no bash"}, "", "[the command could not be run: no bash]"},
		{wire.ExecResult{Class: holdfast.ExitSignal, Signal: "SIGTERM", Code: -1}, "x\n", "x\n[ended by signal SIGTERM]"},
		{wire.ExecResult{Class: holdfast.ExitExit, Code: 2, Left: []string{"12 sleep", "13 node"}}, "x\n", "x\n[exit code 2]\n[still running in the background: 12 sleep, 13 node]"},
		{wire.ExecResult{Class: holdfast.ExitOK, Left: []string{"12 sleep"}}, "", "[still running in the background: 12 sleep]"},
		{wire.ExecResult{Class: "new", Message: "m"}, "", "[ended with new: m]"},
	} {
		r := commandResult(c.res, req, c.text)
		ran := c.res.Class == holdfast.ExitOK || c.res.Class == holdfast.ExitExit
		if r.Content != c.want || r.Outcome != c.res.Class || r.IsError == ran || (r.ExitCode != nil) != ran {
			t.Errorf("%+v: %+v, want %q", c.res, r, c.want)
		}
	}
}

func TestBashBackground(t *testing.T) {
	w := newWorld(t)
	res, err := w.call("Bash", command("sleep 100 > /dev/null 2>&1 & echo started"))
	if err != nil || res.IsError || !strings.HasPrefix(res.Content, "started\n[still running in the background: ") {
		t.Errorf("background: %+v (%v)", res, err)
	}
}

func TestBashLongOutput(t *testing.T) {
	w := newWorld(t)
	got := w.good("Bash", command("echo first; seq 1 20000; echo last"))
	if len(got) > keepHead+keepTail+100 || !strings.HasPrefix(got, "first\n1\n2\n") || !strings.HasSuffix(got, "20000\nlast\n") || !strings.Contains(got, "bytes cut …]") {
		t.Errorf("%d bytes: %q … %q", len(got), got[:20], got[len(got)-20:])
	}
	if live := w.shown(); !strings.Contains(live, "\n10000\n") {
		t.Errorf("the middle was not shown live: %d bytes", len(live))
	}
}

// TestBashInterrupt: a cancelled turn kills the command and what it started, and
// the result holds what it printed.
func TestBashInterrupt(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	id, done := newCall(t), make(chan struct{})
	var res tool.Result
	var err error
	go func() {
		defer close(done)
		res, err = w.callAs(ctx, id, "Bash", command("echo begun; sleep 1000; echo never"))
	}()
	w.eventually("the command runs", func() bool { return strings.Contains(w.shown(), "begun") })
	cancel()
	<-done
	if err != nil || !res.IsError || res.Outcome != holdfast.ExitCanceled || !strings.HasPrefix(res.Content, "begun\n[interrupted") {
		t.Errorf("interrupted: %+v (%v)", res, err)
	}
	ps, err := w.box.Processes(t.Context())
	if err != nil || len(ps) != 0 {
		t.Errorf("left running: %+v (%v)", ps, err)
	}
	// Asked again, by a server that came later: the same outcome, nothing runs.
	w.connect()
	again, err := w.callAs(ctx, id, "Bash", command("echo begun; sleep 1000; echo never"))
	if err != nil || again.Content != res.Content || again.Outcome != res.Outcome {
		t.Errorf("asked again: %+v (%v), first %+v", again, err, res)
	}
}

// TestBashReattach: a pipe that breaks says unavailable, and the same call over
// a new one gets the whole output and the outcome, the command having run once.
func TestBashReattach(t *testing.T) {
	w := newWorld(t)
	id, done := newCall(t), make(chan error, 1)
	cmd := command("echo begun; echo x >> log; while ! test -e go; do sleep 0.01; done; echo end")
	go func() {
		_, err := w.callAs(t.Context(), id, "Bash", cmd)
		done <- err
	}()
	w.eventually("the command runs", func() bool { return strings.Contains(w.shown(), "begun") })
	w.drv.DropConnection(w.id)
	if err := <-done; !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Errorf("with a broken pipe: %v", err)
	}
	w.connect()
	w.put("go", "")
	res, err := w.callAs(t.Context(), id, "Bash", cmd)
	if err != nil || res.IsError || res.Content != "begun\nend\n" {
		t.Errorf("attached: %+v (%v)", res, err)
	}
	if again, err := w.callAs(t.Context(), id, "Bash", cmd); err != nil || res.DurationMS <= 0 || again.DurationMS != res.DurationMS {
		t.Errorf("it took %v ms, then %v ms (%v)", res.DurationMS, again.DurationMS, err)
	}
	if got := w.get("log"); got != "x\n" {
		t.Errorf("it ran again: %q", got)
	}
}

func TestCapture(t *testing.T) {
	var live strings.Builder
	c := &capture{show: func(s string) {
		if !utf8.ValidString(s) {
			t.Errorf("shown in part: %q", s)
		}
		live.WriteString(s)
	}}
	text := strings.Repeat("aé€😀\n", 8000)
	for i := 0; i < len(text); i += 7 {
		n, err := c.Write([]byte(text[i:min(i+7, len(text))]))
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
	}
	if live.String() != text {
		t.Errorf("%d bytes shown live of %d", live.Len(), len(text))
	}
	got := c.text()
	head, tail, ok := strings.Cut(got, fmt.Sprintf("\n[… %d bytes cut …]\n", len(text)-keepHead-keepTail))
	if !ok || !strings.HasPrefix(text, head) || !strings.HasSuffix(text, tail) || len(head) < keepHead-4 || len(tail) < keepTail-4 {
		t.Errorf("kept %d and %d bytes (%v)", len(head), len(tail), ok)
	}
	if c.seen() != int64(len(text)) {
		t.Errorf("seen %d of %d", c.seen(), len(text))
	}
}

func TestCaptureGap(t *testing.T) {
	c := &capture{show: func(string) {}}
	must := func(s string) {
		if _, err := c.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	must("head ")
	c.Gap(5, 1005)
	must("tail")
	if got := c.text(); got != "head \n[… 1000 bytes cut …]\ntail" || c.seen() != 1009 {
		t.Errorf("%q, seen %d", got, c.seen())
	}
	c.Gap(1009, 1010)
	must("end")
	if got := c.text(); got != "head \n[… 1005 bytes cut …]\nend" {
		t.Errorf("after a second gap: %q", got)
	}
}

func TestCaptureLiveIsBounded(t *testing.T) {
	n := 0
	c := &capture{show: func(s string) { n += len(s) }}
	for range 100 {
		_, _ = c.Write(make([]byte, 64<<10))
	}
	if n > 4*(liveBytes+64<<10) { // a NUL is shown as three bytes
		t.Errorf("%d bytes shown live", n)
	}
	_, _ = c.Write([]byte("last"))
	if !strings.HasSuffix(c.text(), "last") {
		t.Error("the end was lost")
	}
}

func FuzzCapture(f *testing.F) {
	f.Add([]byte("abc"), uint16(3))
	f.Fuzz(func(t *testing.T, p []byte, times uint16) {
		c := &capture{show: func(string) {}}
		var whole []byte
		for range times%400 + 1 {
			whole = append(whole, p...)
			_, _ = c.Write(p)
		}
		got := c.text()
		if len(whole) <= keepHead+keepTail {
			if got != clean(string(whole)) {
				t.Fatalf("%d bytes came out as %d", len(whole), len(got))
			}
			return
		}
		if int64(len(whole)-keepHead-keepTail) != c.cut {
			t.Fatalf("of %d bytes %d count as cut", len(whole), c.cut)
		}
		if len(got) > 3*(keepHead+keepTail)+100 || !utf8.ValidString(got) {
			t.Fatalf("%d bytes, valid %v", len(got), utf8.ValidString(got))
		}
	})
}
