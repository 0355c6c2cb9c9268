package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// boxed starts a session with a box and a file in it.
func (p *process) boxed() holdfast.SessionID {
	p.t.Helper()
	id := p.session()
	if res, err := p.Exec(p.t.Context(), id, holdfast.ExecRequest{Command: "echo kept > f"}); err != nil || res.ExitCode != 0 {
		p.t.Fatal(res, err)
	}
	return id
}

// boxPID is the process id of the boxd of a session's box.
func (p *process) boxPID(id holdfast.SessionID) int {
	p.t.Helper()
	list, err := p.Containers(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	for _, c := range list {
		if c.Session == id && c.PID > 0 {
			return c.PID
		}
	}
	p.t.Fatalf("session %s has no box: %+v", id, list)
	return 0
}

// still stops the boxd of sessions by a signal, as if the boxes hung.
func (p *process) still(ids ...holdfast.SessionID) {
	p.t.Helper()
	for _, id := range ids {
		pid := p.boxPID(id)
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			p.t.Fatal(err)
		}
		testkit.Eventually(p.t, "the box stands still", func() bool { return testkit.Stopped(p.t, pid) })
	}
}

// within holds work to a bound and says how long it took.
func within(t *testing.T, what string, most time.Duration, work func()) {
	t.Helper()
	began := time.Now()
	work()
	took := time.Since(began)
	t.Logf("%s: %.1f s", what, took.Seconds())
	if took > most {
		t.Errorf("%s took %s, more than %s", what, took, most)
	}
}

// works is a turn that runs a command in the session's box.
func (p *process) works(id holdfast.SessionID) {
	p.t.Helper()
	if got := p.say(id, `<script>[{"tool":"Bash","input":{"command":"cat f"}},{"say":"still here"}]</script>`); got.Status != holdfast.TurnCompleted || got.Result != "still here" {
		p.t.Errorf("the next turn: %+v", got)
	}
	if got := p.file(id, "f"); got != "kept\n" {
		p.t.Errorf("the file holds %q", got)
	}
}

// followed waits for the end of a turn, for as long as the server lives.
func (p *process) followed(id holdfast.SessionID, turn holdfast.TurnID) holdfast.Turn {
	p.t.Helper()
	for ev, err := range p.Follow(p.t.Context(), id, 0) {
		if err != nil {
			p.t.Fatal(err)
		}
		if ev.Turn == turn && (ev.Type == holdfast.EventTurnCompleted || ev.Type == holdfast.EventTurnFailed || ev.Type == holdfast.EventTurnInterrupted) {
			break
		}
	}
	return p.ended(id, turn)
}

// TestHZ23_ExecEndsInBoxesThatStandStill: the boxd of four boxes is stopped by a
// signal. A command with a timeout ends in each, side by side; the next one has a new
// box on the same files.
func TestHZ23_ExecEndsInBoxesThatStandStill(t *testing.T) {
	p := launch(t, t.TempDir())
	ctx := t.Context()
	ids := []holdfast.SessionID{p.boxed(), p.boxed(), p.boxed(), p.boxed()}
	p.still(ids...)
	var wg sync.WaitGroup
	within(t, "four commands", 30*time.Second, func() {
		for _, id := range ids {
			wg.Go(func() {
				_, err := p.Exec(ctx, id, holdfast.ExecRequest{Command: "true", TimeoutMS: 100})
				if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), "was stopped") || holdfast.HintOf(err) == "" {
					t.Errorf("in a box that stands still: %v", err)
				}
				res, err := p.Exec(ctx, id, holdfast.ExecRequest{Command: "cat f"})
				if err != nil || string(res.Stdout) != "kept\n" {
					t.Errorf("in the new box: %q %v", res.Stdout, err)
				}
			})
		}
		wg.Wait()
	})
}

// TestHZ23_BashEndsInABoxThatStandsStill: a command of a turn ends at its own timeout
// and the grace when boxd stops before it or while it runs. It is unknown, it is not run
// again, and the turn goes on in a new box: the next call of the same answer runs there.
func TestHZ23_BashEndsInABoxThatStandsStill(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	p := local(t, testkit.BaseDir(t))
	const script = `<script>[{"tools":[{"tool":"Bash","input":{"command":"echo ran >> log; exec sleep 600","timeout":2000}},` +
		`{"tool":"Bash","input":{"command":"echo next >> log"}}]},{"say":"went on"}]</script>`
	ids := []holdfast.SessionID{p.boxed(), p.boxed(), p.boxed(), p.boxed()}
	turns := map[holdfast.SessionID]holdfast.TurnID{}
	for _, id := range ids[:2] {
		turns[id] = p.send(id, script)
		testkit.Eventually(t, "the command runs", func() bool { return p.file(id, "log") == "ran\n" })
	}
	p.still(ids...)
	within(t, "four turns", 40*time.Second, func() {
		for _, id := range ids[2:] {
			turns[id] = p.send(id, script)
		}
		for n, id := range ids {
			if got := p.followed(id, turns[id]); got.Status != holdfast.TurnCompleted || got.Result != "went on" {
				t.Errorf("turn %d: %+v", n, got)
			}
			want := "ran\nnext\n"
			if n >= 2 {
				want = "next\n"
			}
			if got := p.file(id, "log"); got != want {
				t.Errorf("turn %d: the log holds %q, not %q", n, got, want)
			}
			if u, f := p.count(id, holdfast.EventToolUnknown), p.count(id, holdfast.EventToolFinished); u != 1 || f != 1 {
				t.Errorf("turn %d: %d calls are unknown and %d finished, not one each", n, u, f)
			}
		}
	})
}

// TestHZ23_FileToolsEndInABoxThatStandsStill: a tool that writes is unknown after a
// minute without a sign of life, one that reads is carried out in the new box; so are
// direct operations on files.
func TestHZ23_FileToolsEndInABoxThatStandsStill(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	p := local(t, testkit.BaseDir(t))
	ctx := t.Context()
	tool := func(name, input string, unknown int) func(holdfast.SessionID) {
		return func(id holdfast.SessionID) {
			got := p.followed(id, p.send(id, fmt.Sprintf(`<script>[{"tool":%q,"input":%s},{"say":"went on"}]</script>`, name, input)))
			if n := p.count(id, holdfast.EventToolUnknown); got.Status != holdfast.TurnCompleted || got.Result != "went on" || n != unknown {
				t.Errorf("%s: %+v, %d unknown, not %d", name, got, n, unknown)
			}
		}
	}
	work := map[string]func(holdfast.SessionID){
		"Write": tool("Write", `{"file_path":"g","content":"x"}`, 1),
		"Edit":  tool("Edit", `{"file_path":"f","old_string":"absent","new_string":"x"}`, 1),
		"Read":  tool("Read", `{"file_path":"f"}`, 0),
		"Grep":  tool("Grep", `{"pattern":"kept"}`, 0),
		"get": func(id holdfast.SessionID) {
			r, err := p.ReadFile(ctx, id, "f")
			if err != nil {
				t.Errorf("get: %v", err)
				return
			}
			defer r.Close()
			if b, err := io.ReadAll(r); err != nil || string(b) != "kept\n" {
				t.Errorf("get: %q %v", b, err)
			}
		},
		"list": func(id holdfast.SessionID) {
			if l, err := p.ListFiles(ctx, id, "."); err != nil || len(l.Entries) == 0 {
				t.Errorf("list: %+v %v", l, err)
			}
		},
		"put": func(id holdfast.SessionID) {
			if _, err := p.WriteFile(ctx, id, "h", strings.NewReader("x"), 0); !holdfast.IsKind(err, holdfast.KindUnavailable) || holdfast.HintOf(err) == "" {
				t.Errorf("put: %v", err)
			}
		},
		"remove": func(id holdfast.SessionID) {
			if err := p.RemoveFile(ctx, id, "absent", false); !holdfast.IsKind(err, holdfast.KindUnavailable) || holdfast.HintOf(err) == "" {
				t.Errorf("remove: %v", err)
			}
		},
	}
	ids := map[string]holdfast.SessionID{}
	for name := range work {
		ids[name] = p.boxed()
	}
	for _, id := range ids {
		p.still(id)
	}
	var wg sync.WaitGroup
	for name, do := range work {
		wg.Go(func() {
			within(t, name, 80*time.Second, func() { do(ids[name]) })
		})
	}
	wg.Wait()
	for _, id := range ids {
		p.works(id)
	}
}

// TestHZ23_BoxesThatStandStillAreStoppedSideBySide: what has to do with several hung
// boxes waits for them at the same time: containers stop, the end of the server with and
// without its boxes, its start, and the watchdog.
func TestHZ23_BoxesThatStandStillAreStoppedSideBySide(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	const boxes = 8
	data := testkit.BaseDir(t)
	t.Cleanup(func() { sweep(t, data) })
	start := func(silence string) *process {
		return launchOn(t, data, "local", holdfast.Untrusted, "--set", "turn_silence="+silence, "--set", "orphan_after=5m")
	}
	p := start("2s")
	var ids []holdfast.SessionID
	for range boxes {
		ids = append(ids, p.boxed())
	}

	p.still(ids...)
	within(t, "containers stop", 12*time.Second, func() {
		if list, err := p.StopContainers(t.Context(), holdfast.StopContainers{All: true}); err != nil || len(list) != boxes {
			t.Errorf("%d stopped, %v", len(list), err)
		}
	})
	if left := boxdsOf(t, data); len(left) > 0 {
		t.Errorf("boxes %v run on", left)
	}

	var turns []holdfast.TurnID
	for _, id := range ids {
		turns = append(turns, p.send(id, `<script>[{"tool":"Bash","input":{"command":"touch begun; exec sleep 600","timeout":600000}},{"say":"never"}]</script>`))
	}
	for _, id := range ids {
		testkit.Eventually(t, "the command runs", func() bool { return p.has(id, "begun") })
	}
	p.still(ids...)
	within(t, "watchdog", 45*time.Second, func() {
		for n, id := range ids {
			if got := p.followed(id, turns[n]); got.Status != holdfast.TurnFailed && got.Status != holdfast.TurnInterrupted {
				t.Errorf("a stuck turn: %+v", got)
			}
		}
	})
	for _, id := range ids {
		p.works(id)
	}

	p.still(ids...)
	within(t, "end of the server", 12*time.Second, func() {
		p.Close()
		p.signal(syscall.SIGTERM)
		p.wait()
	})
	p = start("15m")
	for _, id := range ids {
		p.works(id)
	}

	p.still(ids...)
	p.kill()
	within(t, "start of the server", 12*time.Second, func() { p = start("15m") })
	within(t, "the next turns", 45*time.Second, func() {
		var wg sync.WaitGroup
		for _, id := range ids {
			turn := p.send(id, `<script>[{"tool":"Bash","input":{"command":"cat f"}},{"say":"still here"}]</script>`)
			wg.Go(func() {
				if got := p.followed(id, turn); got.Result != "still here" {
					t.Errorf("the turn after the start: %+v", got)
				}
			})
		}
		wg.Wait()
	})
}

// TestHZ23_SessionsEndInBoxesThatStandStill: interrupt, pause, end and purge of a session
// whose turn is in a hung box end in time, and what lives works on in a new box.
func TestHZ23_SessionsEndInBoxesThatStandStill(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	p := local(t, testkit.BaseDir(t))
	ctx := t.Context()
	asked := holdfast.EndSession{Interrupt: true}
	work := map[string]func(holdfast.SessionID) error{
		"interrupt": func(id holdfast.SessionID) error { _, err := p.Interrupt(ctx, id); return err },
		"pause":     func(id holdfast.SessionID) error { _, err := p.PauseSession(ctx, id, asked); return err },
		"end":       func(id holdfast.SessionID) error { _, err := p.EndSession(ctx, id, asked); return err },
		"purge": func(id holdfast.SessionID) error {
			return p.DeleteSession(ctx, id, holdfast.EndSession{Interrupt: true, Purge: true})
		},
	}
	ids := map[string]holdfast.SessionID{}
	for name := range work {
		for _, state := range []string{" in a turn", " at rest"} {
			if name+state == "interrupt at rest" {
				continue
			}
			id := p.boxed()
			ids[name+state] = id
			if state == " in a turn" {
				p.send(id, `<script>[{"tool":"Bash","input":{"command":"touch begun; exec sleep 600","timeout":600000}},{"say":"never"}]</script>`)
				testkit.Eventually(t, "the command runs", func() bool { return p.has(id, "begun") })
			}
		}
	}
	for _, id := range ids {
		p.still(id)
	}
	var wg sync.WaitGroup
	for name, id := range ids {
		wg.Go(func() {
			within(t, name, 40*time.Second, func() {
				if err := work[strings.Fields(name)[0]](id); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		})
	}
	wg.Wait()
	for name, id := range ids {
		switch strings.Fields(name)[0] {
		case "interrupt", "pause":
			wg.Go(func() {
				got := p.followed(id, p.send(id, `<script>[{"tool":"Bash","input":{"command":"cat f","timeout":2000}},{"say":"still here"}]</script>`))
				if got.Result != "still here" || p.file(id, "f") != "kept\n" {
					t.Errorf("after %s: %+v", name, got)
				}
			})
		}
	}
	wg.Wait()
}

// has reports whether a session has a file.
func (p *process) has(id holdfast.SessionID, name string) bool {
	r, err := p.ReadFile(p.t.Context(), id, name)
	if err != nil {
		return false
	}
	_ = r.Close()
	return true
}

// TestHZ23_TerminalOfAReplacedBox: when the box of a shell is stopped, a terminal gets a
// new shell in the next box; a command without a terminal ends with how to get one.
func TestHZ23_TerminalOfAReplacedBox(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	data := testkit.BaseDir(t)
	p := local(t, data)
	vars := map[string]string{"HOLDFAST_HOME": data, "HOME": data}
	id := p.boxed()
	ours, theirs := openPTY(t)
	resizeTo(t, ours, 24, 80)
	var shown, said, plain, hint screen
	done, piped := make(chan int, 1), make(chan int, 1)
	env := func(k string) string { return vars[k] }
	go func() { done <- run(t.Context(), []string{"terminal", string(id)}, env, theirs, &shown, &said) }()
	in, keys := io.Pipe()
	defer keys.Close()
	go func() { piped <- run(t.Context(), []string{"terminal", string(id)}, env, in, &plain, &hint) }()
	typeKeys(t, ours, "echo fi''rst\r")
	testkit.Eventually(t, "the shell answers", func() bool { return strings.Contains(shown.String(), "first") })
	if _, err := io.WriteString(keys, "echo fi''rst\n"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the other shell answers", func() bool { return strings.Contains(plain.String(), "first") })

	p.still(id)
	if _, err := p.Exec(t.Context(), id, holdfast.ExecRequest{Command: "true", TimeoutMS: 100}); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Fatalf("in a box that stands still: %v", err)
	}
	testkit.Eventually(t, "a new shell is announced", func() bool { return strings.Contains(said.String(), "opening a new one in the next box") })
	testkit.Eventually(t, "the new shell answers", func() bool {
		typeKeys(t, ours, "cat f\r")
		return strings.Contains(shown.String(), "kept")
	})
	typeKeys(t, ours, "exit 4\r")
	var code, other int
	testkit.Eventually(t, "the commands end", func() bool {
		select {
		case code = <-done:
		case other = <-piped:
		default:
		}
		return code != 0 && other != 0
	})
	if code != 4 || other != 6 || !strings.Contains(hint.String(), "holdfast terminal "+string(id)) {
		t.Errorf("exit codes %d and %d\n%s\n%s", code, other, said.String(), hint.String())
	}
}

// TestHZ23_FrontDoorsOfBoxesThatStandStill: a chat, an editor and an MCP client each send
// a message to a session whose box stands still: its command is unknown, the turn goes on
// in a new box, and each client shows its end.
func TestHZ23_FrontDoorsOfBoxesThatStandStill(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	p := local(t, testkit.BaseDir(t))
	const script = `<script>[{"tool":"Bash","input":{"command":"cat f","timeout":2000}},{"tool":"Bash","input":{"command":"cat f"}},{"say":"went on"}]</script>`
	chats, edits, calls := p.boxed(), p.boxed(), p.boxed()
	c := lineChat(t, map[string]string{"HOLDFAST_URL": p.url, "HOLDFAST_HOME": p.data}, string(chats))
	c.sees(0, string(chats)+`[^>]*> `)
	e := p.edit()
	e.load(acp.SessionId(edits))
	m := p.call()
	p.still(chats, edits, calls)
	var wg sync.WaitGroup
	wg.Go(func() {
		within(t, "chat", 40*time.Second, func() { c.types(script+"\n", `went on[^"]`) })
	})
	wg.Go(func() {
		within(t, "acp", 40*time.Second, func() {
			res, err := e.conn.Prompt(t.Context(), acp.PromptRequest{SessionId: acp.SessionId(edits), Prompt: []acp.ContentBlock{acp.TextBlock(script)}})
			if err != nil || res.StopReason != acp.StopReasonEndTurn {
				t.Errorf("the editor: %+v %v", res, err)
			}
		})
	})
	wg.Go(func() {
		within(t, "mcp", 40*time.Second, func() {
			var turn mcpTurn
			if why := m.tool("send_message", map[string]any{"session": string(calls), "text": script}, &turn); why != "" || turn.Result != "went on" {
				t.Errorf("the MCP client: %q %+v", why, turn)
			}
		})
	})
	wg.Wait()
	for _, id := range []holdfast.SessionID{chats, edits, calls} {
		if u, f := p.count(id, holdfast.EventToolUnknown), p.count(id, holdfast.EventToolFinished); u != 1 || f != 1 {
			t.Errorf("%s: %d calls are unknown and %d finished, not one each", id, u, f)
		}
		p.works(id)
	}
}

// TestHZ23_ClaudeInABoxThatStandsStill: the box of the real CLI stands still between two
// turns of one session and during a command of another's. Both turns end, and the sessions
// go on in new boxes with their conversation.
func TestHZ23_ClaudeInABoxThatStandsStill(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	r := newClaudeRig(t)
	idle, busy := r.session(t), r.session(t)
	idle.say("one")
	busy.say("one")
	running := busy.send(`<script>[{"tool":"Bash","input":{"command":"echo ran >> log; exec sleep 600"}},{"say":"went on"}]</script>`)
	testkit.Eventually(t, "the command runs", func() bool { return r.file(busy.id, "log") == "ran\n" })
	r.still(idle.id, busy.id)
	waiting := idle.send("two")
	var wg sync.WaitGroup
	for s, turn := range map[*claudeSession]holdfast.TurnID{idle: waiting, busy: running} {
		wg.Go(func() {
			within(t, string(turn), 88*time.Second, func() {
				typ, d := s.end(turn)
				t.Logf("%s: %s %+v", turn, typ, d)
			})
			if got := s.say("three"); !strings.Contains(got, `You have sent 3 messages. The first was: "one".`) {
				t.Errorf("afterwards: %s", got)
			}
		})
	}
	wg.Wait()
	if got := r.file(busy.id, "log"); got != "ran\n" {
		t.Errorf("the log holds %q: the command ran again", got)
	}
}
