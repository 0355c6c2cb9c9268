//go:build linux

package pipetest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/double"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
)

func TestMain(m *testing.M) {
	if os.Getenv("PIPE_TEST_JOB") != "" {
		os.Exit(playServer())
	}
	os.Exit(m.Run())
}

// rig is one agent in one box, and the model it speaks to.
type rig struct {
	t         *testing.T
	job       job
	workspace string
	model     *double.Server
}

func newRig(t *testing.T, name string, prompts ...string) *rig {
	t.Helper()
	l, err := double.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	model := double.Serve(l, double.Config{})
	t.Cleanup(func() { _ = model.Close() })
	dir := t.TempDir()
	if base, ok := testkit.IsUser(); ok {
		var err error
		if dir, err = os.MkdirTemp(base, "p"); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{t: t, model: model, workspace: filepath.Join(dir, "s", "workspace")}
	r.job = job{
		Home: dir, Journal: filepath.Join(dir, "journal"), Claude: testkit.Claude(t), Double: l.Addr().String(), Session: newUUID(),
		Spec: sandbox.Spec{Box: holdfast.BoxID("w-" + name), Dir: filepath.Join(dir, "s"), BoxdUID: 1_878_500_000, ToolUID: 1_878_500_001},
	}
	for _, p := range prompts {
		r.job.Prompts = append(r.job.Prompts, prompt{UUID: newUUID(), Text: p})
	}
	d, err := openDriver(&r.job, testkit.Boxd(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			r.keep()
		}
		if err := d.Remove(context.Background(), r.job.Spec.Box); err != nil {
			t.Error(err)
		}
		_ = d.Close()
	})
	return r
}

// keep saves what a failed test went through below the clone's .cache.
func (r *rig) keep() {
	dir := filepath.Join(testkit.Root(), ".cache", "logs")
	base := filepath.Join(dir, "pipe-"+strings.NewReplacer("/", "-").Replace(r.t.Name()))
	raw, _ := os.ReadFile(r.job.Journal)
	var reqs bytes.Buffer
	write := double.Recorder(&reqs)
	for _, req := range r.model.Requests() {
		_ = write(req)
	}
	_ = os.MkdirAll(dir, 0o755)
	r.t.Logf("journal and requests are kept as %s-*.jsonl: %v", base,
		errors.Join(os.WriteFile(base+"-journal.jsonl", raw, 0o600), os.WriteFile(base+"-requests.jsonl", reqs.Bytes(), 0o600)))
}

// serving is a server process.
type serving struct {
	t    *testing.T
	cmd  *exec.Cmd
	said chan string
}

func (r *rig) serve(moment string, turn int) *serving {
	r.t.Helper()
	jb := r.job
	jb.Moment, jb.Turn = moment, turn
	raw, err := json.Marshal(jb)
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "PIPE_TEST_JOB="+string(raw), "HOLDFAST_TEST_BOXD="+testkit.Boxd(r.t))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	s := &serving{t: r.t, cmd: cmd, said: make(chan string, 100)}
	go func() {
		defer close(s.said)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			s.said <- sc.Text()
		}
	}()
	r.t.Cleanup(s.kill)
	return s
}

// kill is SIGKILL: the server does nothing more.
func (s *serving) kill() {
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	for range s.said { // until its output ends
	}
	_ = s.cmd.Wait()
}

// wait reads what the server says until it says want.
func (s *serving) wait(want string) {
	s.t.Helper()
	limit := time.NewTimer(90 * time.Second)
	defer limit.Stop()
	for {
		select {
		case line, ok := <-s.said:
			if !ok || strings.HasPrefix(line, "failed") {
				s.t.Fatalf("the server said %q, want %q", line, want)
			}
			if line == want {
				return
			}
		case <-limit.C:
			s.t.Fatalf("the server never said %q", want)
		}
	}
}

// results are the results in the journal, in order.
func (r *rig) results() []message {
	r.t.Helper()
	j, err := openJournal(r.job.Journal)
	if err != nil {
		r.t.Fatal(err)
	}
	defer j.f.Close()
	var out []message
	for _, raw := range j.lines {
		var m message
		if err := json.Unmarshal(raw, &m); err != nil {
			r.t.Fatal(err)
		}
		if m.Type == "result" {
			out = append(out, m)
		}
	}
	return out
}

func (r *rig) effects() string {
	b, _ := os.ReadFile(filepath.Join(r.workspace, "effects"))
	return string(b)
}

func script(steps ...map[string]any) string {
	return "Work: <script>" + string(must(json.Marshal(steps))) + "</script>"
}

func bash(command string) map[string]any {
	return map[string]any{"tool": "Bash", "input": map[string]any{"command": command}}
}

func say(text string) map[string]any { return map[string]any{"say": text} }

// TestClaudeThroughThePipe: a real CLI in a box without a network: handshake,
// turns in one process, each verdict on a tool, an interrupt, and the next turn.
//
// WS-R45, WS-P5.
func TestClaudeThroughThePipe(t *testing.T) {
	r := newRig(
		t, "claude",
		script(bash("echo one >> /workspace/effects"), say("turn one is done")),
		script(bash("echo FORBIDDEN >> /workspace/effects"), say("turn two is done")),
		script(bash("echo REWRITE >> /workspace/effects"), say("turn three is done")),
		script(map[string]any{"say": "long and longer", "chunks": 4, "stall_ms": 600_000}),
		"What do you remember?",
	)
	r.job.Prompts[3].Interrupt = true
	s := r.serve("", 0)
	s.wait("done")
	got := r.results()
	if len(got) != 5 {
		t.Fatalf("%d results", len(got))
	}
	for i, want := range []string{"turn one is done", "turn two is done", "turn three is done", "", "You have sent"} {
		ok := strings.HasPrefix(got[i].Result, want) && !got[i].IsError
		if i == 3 {
			ok = got[i].Subtype == "error_during_execution" && got[i].Reason == "aborted_streaming"
		}
		if !ok {
			t.Errorf("result %d: %+v, want %q", i, got[i], want)
		}
	}
	if e := r.effects(); e != "one\nrewritten\n" {
		t.Errorf("effects %q", e)
	}
	r.checkPrefix(1)
}

// TestHZ6_SettingsInTheBoxSilenceNothing: files that an agent can write allow all
// tools, switch hooks off and bring hooks of their own. The callback is asked all
// the same, for tools that only read as well, and no hook of theirs runs.
func TestHZ6_SettingsInTheBoxSilenceNothing(t *testing.T) {
	r := newRig(
		t, "settings",
		script(bash("echo FORBIDDEN >> effects"), map[string]any{"tool": "Read", "input": map[string]any{"file_path": "/workspace/FORBIDDEN"}}, say("done")),
		script(bash("echo allowed >> effects"), say("done")),
	)
	r.job.Before = `echo canary-7f3a > FORBIDDEN
mkdir -p .claude /home/agent/.claude
for f in .claude/settings.json .claude/settings.local.json /home/agent/.claude/settings.json; do
	echo '{"permissions": {"allow": ["Bash", "Read"], "defaultMode": "bypassPermissions"}, "disableAllHooks": true,
		"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [{"type": "command", "command": "echo hook >> /workspace/effects"}]}]}}' > $f
done`
	r.serve("", 0).wait("done")
	if e := r.effects(); e != "allowed\n" {
		t.Errorf("effects %q", e)
	}
	refused := 0
	for _, req := range r.model.Requests() {
		if strings.Contains(string(req.Body), "canary-7f3a") {
			t.Error("the model was shown the forbidden file")
		}
		refused = max(refused, strings.Count(string(req.Body), "not in this house"))
	}
	if refused != 2 {
		t.Errorf("%d tools were refused", refused)
	}
}

// checkPrefix: each request begins with all of the one before it: tools, system
// text and messages. In at most so many places the last message of an answer
// that was cut short may differ, and nothing before it.
func (r *rig) checkPrefix(most int) {
	r.t.Helper()
	reqs := r.model.Requests()
	for i := 1; i < len(reqs); i++ {
		before := reqs[i-1]
		if n := len(before.Prefix); most > 0 && n > 3 && !reqs[i].Extends(&before) {
			most--
			before.Prefix = before.Prefix[:n-1]
		}
		if !reqs[i].Extends(&before) {
			r.t.Errorf("request %d does not go on where request %d ended", i, i-1)
		}
	}
}
