package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// process is a server in a process of its own.
type process struct {
	*client.Client
	t    *testing.T
	cmd  *exec.Cmd
	data string
	url  string
	log  screen
	done chan struct{}
}

// launch starts a server whose sessions work on this host, and waits until it is
// ready.
func launch(t *testing.T, data string, args ...string) *process {
	t.Helper()
	return launchOn(t, data, "host", holdfast.Trusted, args...)
}

// launchOn is launch with another driver.
func launchOn(t *testing.T, data, driver string, trust holdfast.Trust, args ...string) *process {
	t.Helper()
	p := &process{t: t, data: data, done: make(chan struct{})}
	p.cmd = exec.Command("holdfast", append([]string{
		"serve", "--listen", "127.0.0.1:0", "--data", data, "--driver", driver,
		"--set", "default_trust=" + string(trust), "--set", "limits.mode=best-effort",
	}, args...)...)
	p.cmd.Stderr = &p.log
	p.cmd.WaitDelay = 2 * time.Second // boxes that outlive a killed server may hold its stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		testkit.EndBoxes(t, data)
	})
	first, _ := bufio.NewReader(out).ReadString('\n')
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	_, url, ok := strings.Cut(strings.TrimSpace(first), "ready at ")
	if !ok {
		t.Fatalf("the server said %q\n%s", first, p.log.String())
	}
	p.url = url
	token, err := os.ReadFile(filepath.Join(data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	if p.Client, err = client.New(client.Config{URL: url, Token: strings.TrimSpace(string(token)), ReconnectFor: 1}); err != nil {
		t.Fatal(err)
	}
	return p
}

// settingsFile returns the path of a file for --config with the settings.
func settingsFile(t *testing.T, settings map[string]any) string {
	t.Helper()
	doc, err := json.Marshal(settings) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "holdfast.yaml")
	if err := os.WriteFile(name, doc, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// wait waits for the end and returns what wait(2) said.
func (p *process) wait() syscall.WaitStatus {
	p.t.Helper()
	testkit.Eventually(p.t, "the server ends", func() bool {
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	})
	return p.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

func (p *process) draining() bool {
	resp, err := http.Get(p.url + "/readyz")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return err == nil && resp.StatusCode == http.StatusServiceUnavailable && bytes.Contains(body, []byte("draining"))
}

func (p *process) session() holdfast.SessionID {
	p.t.Helper()
	s, err := p.CreateSession(p.t.Context(), holdfast.CreateSession{Mode: "bypassPermissions"}, "")
	if err != nil {
		p.t.Fatal(err)
	}
	return s.ID
}

// gated sends a message whose tool writes a line and then waits for a file; it
// returns once the line is there.
func (p *process) gated(id holdfast.SessionID) holdfast.TurnID {
	p.t.Helper()
	sent, err := p.Send(p.t.Context(), id, holdfast.SendMessage{
		Text: `<script>[{"tool":"Bash","input":{"command":"echo line >> log.txt; until [ -e go ]; do sleep 0.05; done"}},{"say":"through"}]</script>`,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	testkit.Eventually(p.t, "the tool has begun", func() bool { return p.file(id, "log.txt") == "line\n" })
	return sent.Turn.ID
}

func (p *process) file(id holdfast.SessionID, name string) string {
	r, err := p.ReadFile(p.t.Context(), id, name)
	if err != nil {
		return ""
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return ""
	}
	return string(b)
}

// sweep starts a server that ends the boxes left behind, and ends with them.
func sweep(t *testing.T, data string) {
	p := launch(t, data, "--set", "on_start=stop", "--set", "drain_timeout=0s")
	p.signal(syscall.SIGTERM)
	if st := p.wait(); st.ExitStatus() != 0 {
		t.Errorf("the last server ended with %v\n%s", st, p.log.String())
	}
}

// TestShutdownUnderLoad: told to end while sessions work, the server takes
// nothing new, lets turns finish for as long as it may, ends streams with a word
// and exits with 0; the next start shows every acknowledged turn ended once, and
// a tool that outlived the server ran once (HZ-16, decisions "server death").
//
// FH-48.
func TestShutdownUnderLoad(t *testing.T) {
	data := testkit.BaseDir(t)
	t.Cleanup(func() { sweep(t, data) })
	manager := filepath.Join(data, "notify")
	told, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: manager, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()
	t.Setenv("NOTIFY_SOCKET", manager)
	p := launch(t, data, "--set", "drain_timeout=2s", "--set", "on_shutdown=keep", "--log-format", "json")
	load := &load{p: p, turns: map[holdfast.TurnID]holdfast.SessionID{}}
	for range 8 {
		load.workers.Go(load.work)
	}
	gated := map[holdfast.SessionID]holdfast.TurnID{}
	for range 3 {
		id := p.session()
		gated[id] = p.gated(id)
	}
	var stream string
	for id := range gated {
		stream = string(id)
	}
	ends := follow(t, p, stream)
	testkit.Eventually(t, "the load is on", func() bool { return load.acknowledged() > 30 })

	p.signal(syscall.SIGTERM)
	testkit.Eventually(t, "readyz says draining", p.draining)
	for id := range gated {
		if _, err := p.Send(t.Context(), id, holdfast.SendMessage{Text: "too late"}); !holdfast.IsKind(err, holdfast.KindUnavailable) || holdfast.HintOf(err) == "" {
			t.Errorf("a message to a draining server: %v", err)
		}
		break
	}
	if st := p.wait(); st.ExitStatus() != 0 {
		t.Fatalf("the server ended with %v\n%s", st, p.log.String())
	}
	load.workers.Wait()
	for _, want := range []string{"READY=1", "STOPPING=1"} {
		b := make([]byte, 64)
		if n, err := told.Read(b); err != nil || string(b[:n]) != want {
			t.Errorf("systemd is told %q, %v; want %s", b[:n], err, want)
		}
	}
	if last := <-ends; !strings.Contains(last, "event: error\n") || !strings.Contains(last, `"kind":"unavailable"`) {
		t.Errorf("the stream ended with %q", last)
	}
	if !strings.Contains(p.log.String(), `"msg":"turns still ran at the end; the next start continues them"`) {
		t.Errorf("the log does not say what was left:\n%s", p.log.String())
	}

	p = launch(t, data)
	for id, turn := range gated {
		load.turns[turn] = id
		if _, err := p.WriteFile(t.Context(), id, "go", strings.NewReader(""), 0); err != nil {
			t.Fatal(err)
		}
	}
	for turn, id := range load.turns {
		var got holdfast.Turn
		testkit.Eventually(t, "a turn ends", func() bool {
			var err error
			got, err = p.Turn(t.Context(), id, turn)
			return err == nil && got.Status.Terminal()
		})
		if n := p.ends(id, turn); got.Status != holdfast.TurnCompleted || n != 1 {
			t.Errorf("turn %s of %s is %s and ended %d times", turn, id, got.Status, n)
		}
	}
	for id := range gated {
		if got := p.file(id, "log.txt"); got != "line\n" {
			t.Errorf("the tool of %s left %q", id, got)
		}
	}
	p.signal(syscall.SIGTERM)
	if st := p.wait(); st.ExitStatus() != 0 {
		t.Errorf("the second server ended with %v\n%s", st, p.log.String())
	}
}

// TestSecondSignalEndsAtOnce: whoever asks twice does not wait for turns.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	data := testkit.BaseDir(t)
	t.Cleanup(func() { sweep(t, data) })
	p := launch(t, data, "--set", "drain_timeout=1h")
	id := p.session()
	turn := p.gated(id)
	p.signal(syscall.SIGTERM)
	testkit.Eventually(t, "readyz says draining", p.draining)
	p.signal(syscall.SIGTERM)
	if st := p.wait(); !st.Signaled() || st.Signal() != syscall.SIGTERM {
		t.Errorf("the server ended with %v", st)
	}
	p = launch(t, data)
	if _, err := p.WriteFile(t.Context(), id, "go", strings.NewReader(""), 0); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the turn goes on and ends", func() bool { return p.ends(id, turn) == 1 })
	p.signal(syscall.SIGTERM)
	p.wait()
}

// ends counts the last events of a turn.
func (p *process) ends(id holdfast.SessionID, turn holdfast.TurnID) (n int) {
	p.t.Helper()
	for ev, err := range p.AllEvents(p.t.Context(), id, 0) {
		if err != nil {
			p.t.Fatal(err)
		}
		if ev.Turn == turn && ev.EndsTurn() {
			n++
		}
	}
	return n
}

// load keeps a server busy and remembers what it acknowledged.
type load struct {
	p       *process
	workers sync.WaitGroup
	mu      sync.Mutex
	turns   map[holdfast.TurnID]holdfast.SessionID
}

func (l *load) acknowledged() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.turns)
}

// work sends turns to a session, one after the other, until the server refuses.
func (l *load) work() {
	ctx := context.WithoutCancel(l.p.t.Context())
	s, err := l.p.CreateSession(ctx, holdfast.CreateSession{Mode: "bypassPermissions"}, "")
	for err == nil {
		var turn *client.TurnStream
		turn, err = l.p.Stream(ctx, s.ID, holdfast.SendMessage{Text: `<script>[{"tool":"Bash","input":{"command":"echo x >> load.txt"}},{"say":"ok","chunks":3}]</script>`})
		if err != nil {
			break
		}
		l.mu.Lock()
		l.turns[turn.Turn] = s.ID
		l.mu.Unlock()
		for _, err = range turn.Events(ctx) {
			if err != nil {
				break
			}
		}
	}
	if !holdfast.IsKind(err, holdfast.KindUnavailable) {
		l.p.t.Errorf("a worker ended with %v", err)
	}
}

// follow reads a session's stream to its end and gives the last frame.
func follow(t *testing.T, p *process, id string) <-chan string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/v1/sessions/"+id+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(filepath.Join(p.data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	last := make(chan string, 1)
	go func() {
		defer resp.Body.Close()
		all, err := io.ReadAll(resp.Body)
		if err != nil {
			err = errors.Join(errors.New("cut"), err)
			all = append(all, "\n\n"+err.Error()...)
		}
		frames := strings.Split(strings.TrimSpace(string(all)), "\n\n")
		last <- frames[len(frames)-1]
	}()
	return last
}
