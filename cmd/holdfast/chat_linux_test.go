package main

import (
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/plain"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// front is an address that leads to whichever server is there at the moment.
type front struct {
	url string
	to  atomic.Pointer[string]
}

func newFront(t *testing.T) *front {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	f := &front{url: "http://" + ln.Addr().String()}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go f.pass(conn)
		}
	}()
	return f
}

func (f *front) pass(in net.Conn) {
	defer in.Close()
	to := f.to.Load()
	if to == nil {
		return
	}
	out, err := net.Dial("tcp", strings.TrimPrefix(*to, "http://"))
	if err != nil {
		return
	}
	defer out.Close()
	go func() {
		_, _ = io.Copy(out, in)
		out.Close()
	}()
	_, _ = io.Copy(in, out)
}

// chatting is a chat on a terminal that has no cursor, in a process of its own.
type chatting struct {
	t    *testing.T
	cmd  *exec.Cmd
	keys *os.File
	seen screen
	done chan struct{}
}

func lineChat(t *testing.T, vars map[string]string, args ...string) *chatting {
	t.Helper()
	ours, theirs := openPTY(t)
	resizeTo(t, ours, 40, 200)
	c := &chatting{t: t, keys: ours, done: make(chan struct{})}
	c.cmd = exec.Command("holdfast", append([]string{"chat"}, args...)...)
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = theirs, theirs, theirs
	c.cmd.Env = append(os.Environ(), "TERM=dumb")
	for k, v := range vars {
		c.cmd.Env = append(c.cmd.Env, k+"="+v)
	}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill(); <-c.done })
	go func() { _, _ = io.Copy(&c.seen, ours) }()
	go func() {
		defer close(c.done)
		_ = c.cmd.Wait()
	}()
	return c
}

// plain is what was shown, without the terminal's control.
func (c *chatting) plain() string {
	var st plain.Stripper
	return st.Clean(c.seen.String())
}

// types keys and waits for what is shown in answer.
func (c *chatting) types(keys, want string) {
	c.t.Helper()
	before := len(c.plain())
	if _, err := c.keys.WriteString(keys); err != nil {
		c.t.Fatal(err)
	}
	c.sees(before, want)
}

func (c *chatting) sees(from int, want string) {
	c.t.Helper()
	re := regexp.MustCompile(want)
	defer func() {
		if c.t.Failed() {
			c.t.Logf("the terminal:\n%s", c.seen.String())
		}
	}()
	testkit.Eventually(c.t, "the terminal shows "+want, func() bool {
		all := c.plain()
		return re.MatchString(all[min(from, len(all)):])
	})
}

// TestChatOnATerminal: the session that the first message makes, a turn, the queue, Ctrl-C, a server killed and started
// again in the middle of a turn, and leaving.
func TestChatOnATerminal(t *testing.T) {
	data := testkit.BaseDir(t)
	t.Cleanup(func() { sweep(t, data) })
	p := launch(t, data)
	f := newFront(t)
	f.to.Store(&p.url)
	vars := map[string]string{"HOLDFAST_URL": f.url, "HOLDFAST_HOME": data}
	c := lineChat(t, vars, "--trust", "trusted", "--mode", "bypassPermissions")
	c.sees(0, `your first message makes a session[^>]*> `)
	c.types("hello\n", `trusted: its tools run as the server's user[^§]*session [0-9a-f-]{36}[^§]*You have sent 1 messages[^>]*> `)
	id := holdfast.SessionID(regexp.MustCompile(`session ([0-9a-f-]{36})`).FindStringSubmatch(c.plain())[1])

	c.types("/status\n", `status +active[^>]*nothing runs[^>]*> `)

	// A message during a turn waits, and says so; Ctrl-C ends the running one only.
	c.types(`<script>[{"stall_ms":600000}]</script>`+"\n", ``)
	testkit.Eventually(t, "the turn runs", func() bool { return p.runs(id) })
	c.types("next\n", `queued, position 1`)
	c.types("\x03", `interrupting; Ctrl-C again leaves[^§]*the turn was interrupted[^§]*You have sent 3 messages[^>]*> `)

	// The server dies in the middle of a tool and comes back elsewhere.
	c.types(`<script>[{"tool":"Bash","input":{"command":"echo line >> log.txt; until [ -e go ]; do sleep 0.05; done"}},{"say":"through"}]</script>`+"\n", `→ Bash`)
	testkit.Eventually(t, "the tool has begun", func() bool { return p.file(id, "log.txt") == "line\n" })
	p.signal(syscall.SIGKILL)
	p.wait()
	c.sees(0, `the server went away; waiting for it`)
	c.types("are you there\n", `not sent yet: [^§]*it goes out when the server is back`)
	p = launch(t, data)
	f.to.Store(&p.url)
	c.sees(0, `the server is back`)
	if _, err := p.WriteFile(t.Context(), id, "go", strings.NewReader(""), 0); err != nil {
		t.Fatal(err)
	}
	c.sees(0, `← Bash ok[^§]*through[^§]*You have sent 5 messages[^>]*> `)
	if got := p.file(id, "log.txt"); got != "line\n" {
		t.Errorf("the tool ran more than once: %q", got)
	}

	// Ctrl-C while nothing runs, twice.
	c.types("\x03", `nothing runs`)
	c.types("\x03", `left; to come back: holdfast chat `+string(id))
	testkit.Eventually(t, "the chat ends", func() bool {
		select {
		case <-c.done:
			return true
		default:
			return false
		}
	})
	if code := c.cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d", code)
	}
	if n := strings.Count(c.plain(), "You have sent 5 messages"); n != 1 {
		t.Errorf("the last answer is shown %d times", n)
	}
}

// runs reports whether a turn of the session runs in its model.
func (p *process) runs(id holdfast.SessionID) bool {
	n := 0
	for ev, err := range p.AllEvents(p.t.Context(), id, 0) {
		switch {
		case err != nil:
			return false
		case ev.Type == holdfast.EventTurnStarted:
			n++
		case ev.EndsTurn():
			n--
		}
	}
	return n == 1
}
