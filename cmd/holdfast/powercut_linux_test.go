package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/child"
	"github.com/holdfast-run/holdfast/internal/double"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/internal/torture"
)

// machine runs servers on one data directory, each in the machine's current boot: a
// boot id is bound over the kernel's, in the server's own mount namespace.
type machine struct {
	t     *testing.T
	dir   string
	boots int
	// more are flags of each server.
	more   []string
	server *child.Server
	*client.Client
}

func newMachine(t *testing.T, more ...string) *machine {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: only root can bind another boot id")
	}
	m := &machine{t: t, dir: testkit.BaseDir(t), more: more}
	binary, err := exec.LookPath("holdfast")
	if err != nil {
		t.Fatal(err)
	}
	// A second /proc lets boxes mount theirs: the first has a file mounted on it.
	script := fmt.Sprintf(`#!/bin/sh
exec unshare -m sh -c 'mount --make-rprivate / && mount -t proc proc "$0/proc" &&
mount --bind "$0/boot_id" /proc/sys/kernel/random/boot_id && exec "$@"' %q %q "$@"
`, m.dir, binary)
	if err := os.Mkdir(filepath.Join(m.dir, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.dir, "serve.sh"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if m.server != nil {
			m.server.Terminate(time.Minute)
		}
	})
	m.reboot()
	return m
}

// reboot gives the machine another boot id.
func (m *machine) reboot() {
	m.boots++
	id := fmt.Sprintf("%08d-1111-4111-8111-111111111111\n", m.boots)
	if err := os.WriteFile(filepath.Join(m.dir, "boot_id"), []byte(id), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) start() {
	m.t.Helper()
	var err error
	m.server, err = child.Start(m.t.Context(), child.Config{
		Binary: filepath.Join(m.dir, "serve.sh"), Env: os.Environ(), Data: filepath.Join(m.dir, "data"), Log: filepath.Join(m.dir, "log"),
		Args: m.more,
	})
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
		m.t.Fatalf("%v\n%s", err, log)
	}
	m.Client = m.server.Client
}

// cut ends the server and every box at once.
func (m *machine) cut() {
	m.t.Helper()
	list, err := m.Containers(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	m.server.Kill()
	for _, c := range list {
		// Pid 0 would be this test's own process group.
		if c.PID > 1 {
			_ = syscall.Kill(c.PID, syscall.SIGKILL)
		}
	}
}

// risks are the notices of power cuts in a session's log.
func (m *machine) risks(id holdfast.SessionID) []holdfast.FilesAtRisk {
	m.t.Helper()
	var out []holdfast.FilesAtRisk
	for ev, err := range m.AllEvents(m.t.Context(), id, 0) {
		if err != nil {
			log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
			m.t.Fatalf("%v\n%s", err, log)
		}
		var n holdfast.Notice
		if ev.Type == holdfast.EventNotice && ev.Decode(&n) == nil && n.Code == holdfast.NoticeFilesAtRisk {
			out = append(out, *n.AtRisk)
		}
	}
	return out
}

// TestHZ21_PowerCutIsToldByARealServer: a server that starts in another boot of the
// machine gives a session with a turn and with a command outside of turns one notice of
// both, and the receipt of its next resume says the same. A crash in the same boot
// causes none, and neither does a reboot after an end in order.
func TestHZ21_PowerCutIsToldByARealServer(t *testing.T) {
	m := newMachine(t)
	m.start()
	ctx := t.Context()
	s, err := m.CreateSession(ctx, holdfast.CreateSession{}, "")
	if err != nil {
		t.Fatal(err)
	}
	bash := `<script>[{"tool":"Bash","input":{"command":"echo a > a"}},{"say":"done"}]</script>`
	if err := m.server.Turn(ctx, s.ID, bash); err != nil {
		t.Fatal(err)
	}
	if res, err := m.Exec(ctx, s.ID, holdfast.ExecRequest{Command: "echo b > b"}); err != nil || res.Class != holdfast.ExitOK {
		t.Fatalf("%+v, %v", res, err)
	}
	if _, err := m.PauseSession(ctx, s.ID, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	m.cut()
	m.start()
	if got := m.risks(s.ID); len(got) != 0 {
		t.Errorf("a crash in the same boot gave %+v", got)
	}
	m.cut()
	m.reboot()
	m.start()
	got := m.risks(s.ID)
	if len(got) != 1 || len(got[0].Turns) != 1 || got[0].Turns[0].Number != 1 || !got[0].Direct {
		t.Fatalf("notices %+v, want one of turn 1 and of a command outside of turns", got)
	}
	if res, err := m.ResumeSession(ctx, s.ID, holdfast.ResumeSession{}); err != nil || res.Receipt == nil || res.Receipt.AtRisk == nil {
		t.Errorf("receipt %+v, %v", res.Receipt, err)
	}
	if err := m.server.Turn(ctx, s.ID, bash); err != nil {
		t.Fatal(err)
	}
	if !m.server.Terminate(time.Minute) {
		t.Fatal("the server did not end")
	}
	m.reboot()
	m.start()
	if got := m.risks(s.ID); len(got) != 1 {
		t.Errorf("after an end in order: %+v", got[1:])
	}
}

// wait follows a session's log to an event.
func (m *machine) wait(id holdfast.SessionID, what string, is func(holdfast.Event) bool) holdfast.Event {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*time.Minute)
	defer cancel()
	for ev, err := range m.Follow(ctx, id, 0) {
		if err != nil {
			m.t.Fatalf("%s: %v", what, err)
		}
		if is(ev) {
			return ev
		}
	}
	m.t.Fatalf("there was no %s", what)
	return holdfast.Event{}
}

// TestHZ21_PowerCutIsToldToAgentsInBoxes: with the real CLIs, a power cut in the midst of a
// turn of an agent in a box is told once by a notice in that turn and by the receipt, and
// the agent's next request to its model has the text, from then on once.
func TestHZ21_PowerCutIsToldToAgentsInBoxes(t *testing.T) {
	testkit.Long(t)
	for _, runtime := range []string{"claude", "acp:claude-code-acp"} {
		t.Run(runtime, func(t *testing.T) { cutInATurn(t, runtime) })
	}
}

// newAgentMachine is a machine whose servers have a CLI, and the model that they ask.
func newAgentMachine(t *testing.T, cli string) (*machine, *double.Server) {
	t.Helper()
	runtimes := testkit.Runtimes(t, cli)
	l, err := double.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	model := double.Serve(l, double.Config{})
	t.Cleanup(func() { _ = model.Close() })
	m := newMachine(t, "--set", "anthropic.url=http://"+l.Addr().String(), "--set", "anthropic.key_file="+keyFile(t))
	data := filepath.Join(m.dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", runtimes, filepath.Join(data, "runtimes")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return m, model
}

func cutInATurn(t *testing.T, runtime string) {
	m, model := newAgentMachine(t, strings.TrimPrefix(runtime, "acp:"))
	m.start()
	s, err := m.CreateSession(t.Context(), holdfast.CreateSession{Runtime: runtime, Model: claudeModel}, "")
	if err != nil {
		t.Fatal(err)
	}
	command := func(text string) string {
		return fmt.Sprintf(`{"tool":"Bash","input":{"command":%q,"description":"d"}}`, text)
	}
	send := func(text string) holdfast.TurnID {
		t.Helper()
		sent, err := m.Send(t.Context(), s.ID, holdfast.SendMessage{Text: text})
		if err != nil {
			t.Fatal(err)
		}
		return sent.Turn.ID
	}
	ended := func(turn holdfast.TurnID) holdfast.Event {
		t.Helper()
		return m.wait(s.ID, "end of the turn", func(ev holdfast.Event) bool { return ev.Turn == turn && ev.EndsTurn() })
	}
	ended(send("Work 1: <script>[" + command("echo a > a") + `,{"say":"one"}]</script>`))
	second := send("Work 2: <script>[" + command("echo b > b") + "," + command("until [ -e go ]; do sleep 0.02; done") + `,{"say":"two"}]</script>`)
	calls := 0
	m.wait(s.ID, "the second command", func(ev holdfast.Event) bool {
		if ev.Type == holdfast.EventToolStarted && ev.Turn == second {
			calls++
		}
		return calls == 2
	})
	m.cut()
	m.reboot()
	before := len(model.Requests())
	m.start()

	notice := m.wait(s.ID, "notice", func(ev holdfast.Event) bool {
		var n holdfast.Notice
		return ev.Type == holdfast.EventNotice && ev.Decode(&n) == nil && n.Code == holdfast.NoticeFilesAtRisk
	})
	end := ended(second)
	t.Logf("the turn ended with %s %s", end.Type, end.Data)
	if notice.Turn != second || notice.Seq >= end.Seq {
		t.Errorf("the notice #%d is of turn %q, want %q, which ended at #%d", notice.Seq, notice.Turn, second, end.Seq)
	}
	got := m.risks(s.ID)
	if len(got) != 1 || len(got[0].Turns) != 2 || got[0].Turns[0].Number != 1 || got[0].Turns[1].Number != 2 || got[0].Direct {
		t.Fatalf("notices %+v, want one of turns 1 and 2", got)
	}
	const told = "The machine went down without a shutdown"
	// The CLI's own requests, such as the one for a title, offer no tools.
	asked := func(text string) int {
		t.Helper()
		for _, req := range slices.Backward(model.Requests()[before:]) {
			if body := string(req.Body); strings.HasPrefix(req.Path, "/v1/messages") && strings.Contains(body, `"input_schema"`) && strings.Contains(body, text) {
				return strings.Count(body, told)
			}
		}
		t.Errorf("after the cut the model was never asked %q", text)
		return 0
	}
	if _, err := m.PauseSession(t.Context(), s.ID, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	res, err := m.ResumeSession(t.Context(), s.ID, holdfast.ResumeSession{})
	if err != nil || res.Receipt == nil || res.Receipt.AtRisk == nil || len(res.Receipt.AtRisk.Turns) != 2 {
		t.Errorf("receipt %+v, %v", res.Receipt, err)
	}
	ended(send("Work 3: what now?"))
	if n := asked("Work 3: what now?"); n != 1 {
		t.Errorf("the request of turn 3 has the text of the cut %d times", n)
	}
	ended(send("Work 4: and now?"))
	if n := asked("Work 4: and now?"); n != 1 {
		t.Errorf("the request of turn 4 has the text of the cut %d times", n)
	}
}

// TestFaultsOfEveryKind: a sample of `holdfast torture --faults`.
func TestFaultsOfEveryKind(t *testing.T) {
	testkit.Long(t)
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: only root can mount a disk image")
	}
	binary, err := exec.LookPath("holdfast")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var out bytes.Buffer
	res, err := torture.Run(ctx, torture.Config{
		Binary: binary, Dir: testkit.BaseDir(t), Env: append(os.Environ(), "HOLDFAST_DEFAULT_MODEL=scripted"), Disk: true, Faults: 12, Sessions: 3, Seed: 5, Out: &out,
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if err := res.Print(&out); err != nil {
		t.Fatal(err)
	}
	if !res.OK() || res.Messages == 0 || res.Effects == 0 {
		t.Error(out.String())
	}
}
