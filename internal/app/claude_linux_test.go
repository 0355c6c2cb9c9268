//go:build linux

package app_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// claudeSettings are those of a server that has the pinned CLI.
func claudeSettings(t *testing.T) config.Config {
	t.Helper()
	cfg := settings(t, "local")
	// The trees are what they are to the bit, whoever links to them.
	if out, err := exec.Command("cp", "-al", testkit.Runtimes(t, "claude"), filepath.Join(cfg.Data, "runtimes")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chmod(cfg.Data, 0o755); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func claudeSession(t *testing.T, c *client.Client, with func(*holdfast.CreateSession)) holdfast.Session {
	t.Helper()
	req := holdfast.CreateSession{Runtime: "claude"}
	if with != nil {
		with(&req)
	}
	s, err := c.CreateSession(t.Context(), req, "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestClaudeTurns: turns 1, 2 and 3 of the real CLI in a box, in one process, with a
// tool between them: each knows what was before it.
//
// WS-R45, WS-R48, WS-R88, WS-R103, WS-R104, WS-R124, WS-P2, WS-P5.
func TestClaudeTurns(t *testing.T) {
	c, _ := serve(t, claudeSettings(t))
	s := claudeSession(t, c, nil)
	say := func(text string) holdfast.TurnEnded { return turn(t, c, s.ID, text) }
	if end := say("one"); !strings.Contains(end.Result, "You have sent 1 messages") {
		t.Errorf("turn 1 said %q", end.Result)
	}
	if end := say(`<script>[{"think":"hm","say":"now","tools":[{"tool":"Bash","input":{"command":"echo a >> f"}},{"tool":"Bash","input":{"command":"echo b >> f; cat f"}}]},{"say":"done"}]</script>`); end.Result != "done" || end.Steps != 2 {
		t.Errorf("turn 2: %+v", end)
	}
	if end := say("three"); !strings.Contains(end.Result, "You have sent 3 messages") || !strings.Contains(end.Result, "2 tool results") {
		t.Errorf("turn 3 said %q", end.Result)
	}
	wantTiers(t, c, s.ID, "fresh live live")
	if odd := logged[holdfast.Notice](t, c, s.ID, holdfast.EventNotice); len(odd) > 0 {
		t.Errorf("notices %+v", odd)
	}
}

// talk sends a message and reads its turn up to an event of a type, and what comes
// after that in the background.
type talk struct {
	t  *testing.T
	c  *client.Client
	id holdfast.SessionID
	st *client.TurnStream
	ev chan holdfast.Event
}

func startTurn(t *testing.T, c *client.Client, id holdfast.SessionID, text string) *talk {
	t.Helper()
	st, err := c.Stream(t.Context(), id, holdfast.SendMessage{Text: text})
	if err != nil {
		t.Fatal(err)
	}
	k := &talk{t: t, c: c, id: id, st: st, ev: make(chan holdfast.Event, 10_000)}
	go func() {
		defer close(k.ev)
		for ev, err := range st.Events(t.Context()) {
			if err != nil {
				return
			}
			k.ev <- ev
		}
	}()
	t.Cleanup(func() {
		st.Close()
		for range k.ev {
		}
	})
	return k
}

// until reads events until one of these types comes.
func (k *talk) until(types ...holdfast.EventType) holdfast.Event {
	k.t.Helper()
	limit := time.After(60 * time.Second)
	for {
		select {
		case ev, ok := <-k.ev:
			if !ok {
				k.t.Fatalf("the stream ended before %v", types)
			}
			k.t.Logf("%d %s %.300s", ev.Seq, ev.Type, ev.Data)
			if slices.Contains(types, ev.Type) {
				return ev
			}
		case <-limit:
			k.t.Fatalf("no %v", types)
		}
	}
}

func (k *talk) end() (holdfast.EventType, holdfast.TurnEnded) {
	k.t.Helper()
	ev := k.until(holdfast.EventTurnCompleted, holdfast.EventTurnFailed, holdfast.EventTurnInterrupted)
	return ev.Type, payload[holdfast.TurnEnded](k.t, ev)
}

func payload[T any](t *testing.T, ev holdfast.Event) T {
	t.Helper()
	var v T
	if err := ev.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// transcribed reports whether a transcript that the CLI keeps in a session's home holds
// a text.
func transcribed(cfg config.Config, id holdfast.SessionID, text string) bool {
	files := testkit.Glob(cfg.Data, "sessions/"+string(id)+"/home/.claude/projects/-workspace/*.jsonl")
	return slices.ContainsFunc(files, func(name string) bool {
		b, err := os.ReadFile(name)
		return err == nil && strings.Contains(string(b), text)
	})
}

// effects is what the commands of a test left in the workspace's file "f".
func effects(cfg config.Config, id holdfast.SessionID) string {
	b, _ := os.ReadFile(filepath.Join(cfg.Data, "sessions", string(id), "workspace", "f"))
	return string(b)
}

func scriptOf(steps string) string { return "<script>" + steps + "</script>" }

// TestClaudeDecisions: a denied tool does not run and the model reads why; what a hook
// rewrites is what runs; hooks after a call reach the model.
func TestClaudeDecisions(t *testing.T) {
	cfg := claudeSettings(t)
	cfg.Permissions.Deny = []string{"Bash(rm *)"}
	cfg.Hooks = config.Hooks{
		hook.PreToolUse:  {{Matcher: "Bash", Hooks: []hook.Entry{{Type: "command", Command: `grep -q CHANGE && printf '{"updatedInput":{"command":"echo changed >> f"}}' || true`}}}},
		hook.PostToolUse: {{Matcher: "Bash", Hooks: []hook.Entry{{Type: "command", Command: `printf '{"additionalContext":"the hook saw it"}'`}}}},
	}
	c, _ := serve(t, cfg)
	s := claudeSession(t, c, nil)
	end := turn(t, c, s.ID, scriptOf(`[{"tools":[{"tool":"Bash","input":{"command":"rm -rf f"}},{"tool":"Bash","input":{"command":"echo CHANGE >> f"}}]},{"say":"done"}]`))
	if end.Result != "done" || effects(cfg, s.ID) != "changed\n" || len(end.Denials) != 1 {
		t.Errorf("%+v, effects %q", end, effects(cfg, s.ID))
	}
	denied := logged[holdfast.ToolDecision](t, c, s.ID, holdfast.EventToolDenied)
	if len(denied) != 1 || denied[0].By != "deny rule" || denied[0].Rule != "Bash(rm *)" {
		t.Errorf("denied %+v", denied)
	}
	var all strings.Builder
	for _, m := range logged[holdfast.AgentMirrored](t, c, s.ID, holdfast.EventAgentMirrored) {
		for _, e := range m.Entries {
			all.Write(e)
		}
	}
	for _, want := range []string{"Bash(rm *)", "the hook saw it"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("the model did not read %q", want)
		}
	}
	if end := turn(t, c, s.ID, "and?"); !strings.Contains(end.Result, "2 tool results") {
		t.Errorf("afterwards: %q", end.Result)
	}
}

// TestSDKH0_FileChangedForCommandsOfACLI: hooks hear of each file that a command of the
// CLI changed, which no tool of the server ran.
func TestSDKH0_FileChangedForCommandsOfACLI(t *testing.T) {
	cfg := claudeSettings(t)
	cfg.Hooks = config.Hooks{hook.FileChanged: {{Hooks: []hook.Entry{{Type: "command", Command: "cat >> changed.jsonl; echo >> changed.jsonl"}}}}}
	c, _ := serve(t, cfg)
	s := claudeSession(t, c, nil)
	if end := turn(t, c, s.ID, scriptOf(`[{"tool":"Write","input":{"file_path":"/workspace/w","content":"x"}},{"tool":"Bash","input":{"command":"echo a > f; echo b > w"}},{"tool":"Bash","input":{"command":"cat f"}},{"tool":"Bash","input":{"command":"rm w; exit 3"}},{"say":"done"}]`)); end.Result != "done" {
		t.Fatalf("%+v", end)
	}
	raw, err := os.ReadFile(filepath.Join(cfg.Data, "changed.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for line := range strings.Lines(string(raw)) {
		var in hook.Input
		if strings.TrimSpace(line) == "" {
			continue
		}
		if err := json.Unmarshal([]byte(line), &in); err != nil {
			t.Fatal(err)
		}
		told = append(told, strings.Join([]string{in.ToolName, in.Trigger, in.FilePath}, " "))
	}
	if want := []string{"Write  /workspace/w", "Bash created /workspace/f", "Bash changed /workspace/w", "Bash removed /workspace/w"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if n := logged[holdfast.Notice](t, c, s.ID, holdfast.EventNotice); len(n) != 0 {
		t.Errorf("notices %+v", n)
	}
}

// TestSDKH16_TranscriptOfACLI: hooks of a session whose agent keeps a transcript are told
// where it lies in the box (SDK-H15), and it does lie there.
func TestSDKH16_TranscriptOfACLI(t *testing.T) {
	cfg := claudeSettings(t)
	note := []hook.Group{{Hooks: []hook.Entry{{Type: "command", Command: "cat >> told.jsonl; echo >> told.jsonl"}}}}
	inside := []hook.Group{{Hooks: []hook.Entry{{Type: "command", Where: hook.InBox, Command: `p=$(sed -n 's/.*"transcriptPath":"\([^"]*\)".*/\1/p'); grep -c "look at me" "$p"`}}}}
	cfg.Hooks = config.Hooks{hook.PreToolUse: note, hook.PostToolUse: slices.Concat(note, inside), hook.Stop: note}
	c, _ := serve(t, cfg)
	s := claudeSession(t, c, nil)
	turn(t, c, s.ID, scriptOf(`[{"tool":"Bash","input":{"command":"echo look at me"}},{"say":"done"}]`))
	var told []hook.Input
	testkit.Eventually(t, "the end of the turn is told", func() bool {
		raw, _ := os.ReadFile(filepath.Join(cfg.Data, "told.jsonl"))
		told = nil
		for line := range strings.Lines(string(raw)) {
			var in hook.Input
			if json.Unmarshal([]byte(line), &in) == nil {
				told = append(told, in)
			}
		}
		return len(told) == 3
	})
	for _, in := range told {
		if dir, name := filepath.Split(in.TranscriptPath); dir != "/home/agent/.claude/projects/-workspace/" || !strings.HasSuffix(name, ".jsonl") || len(name) < 40 {
			t.Errorf("%s is told the transcript %q", in.Event, in.TranscriptPath)
		}
	}
	ran := slices.DeleteFunc(logged[holdfast.HookRan](t, c, s.ID, holdfast.EventHookRan), func(r holdfast.HookRan) bool { return r.Where != "box" })
	if len(ran) != 1 || ran[0].Outcome != hook.OutcomeOK || strings.TrimSpace(ran[0].Message) == "0" || ran[0].Message == "" {
		t.Errorf("the transcript is not in the box where the hook was told: %+v", ran)
	}
}

// TestClaudeApprovalAcrossRestarts: a question that the CLI's tool waits for is
// answered through the API after the server restarted, and the tool runs once.
func TestClaudeApprovalAcrossRestarts(t *testing.T) {
	for _, on := range []config.OnShutdown{config.ShutdownKeep, config.ShutdownStop} {
		t.Run(string(on), func(t *testing.T) {
			cfg := claudeSettings(t)
			cfg.OnShutdown = on
			cfg.Permissions.Ask = []string{"Bash(echo asked *)"}
			c, stop := serve(t, cfg)
			s := claudeSession(t, c, nil)
			// A CLI that resumes a transcript adds an answer of its own, which the model counts as the
			// script's second step; so the third makes the calls again.
			const asks = `{"tools":[{"tool":"Bash","input":{"command":"echo asked >> f"}},{"tool":"Bash","input":{"command":"echo free >> f"}}]}`
			k := startTurn(t, c, s.ID, scriptOf(`[`+asks+`,{"say":"done"},`+asks+`,{"say":"done"}]`))
			k.until(holdfast.EventApprovalAsked)
			stop()
			c, _ = serve(t, cfg)
			page, err := c.Approvals(t.Context(), holdfast.ApprovalFilter{Session: string(s.ID)})
			if err != nil || len(page.Approvals) != 1 {
				t.Fatalf("%+v %v", page, err)
			}
			a, err := c.AnswerApproval(t.Context(), page.Approvals[0].ID, holdfast.AnswerApproval{Decision: "allow"})
			if err != nil || a.State != holdfast.ApprovalAllowed {
				t.Fatalf("%+v %v", a, err)
			}
			completes(t, c, s.ID)
			if got := effects(cfg, s.ID); got != "asked\nfree\n" {
				t.Errorf("effects %q", got)
			}
			if asked := logged[holdfast.Approval](t, c, s.ID, holdfast.EventApprovalAsked); len(asked) != 1 {
				t.Errorf("asked %d times", len(asked))
			}
			if end := turn(t, c, s.ID, "and?"); !strings.Contains(end.Result, "You have sent 2 messages") {
				t.Errorf("afterwards: %q", end.Result)
			}
		})
	}
}

// TestClaudeSteerAndInterrupt: a message joins the turn, another ends it, and the
// session goes on.
func TestClaudeSteerAndInterrupt(t *testing.T) {
	cfg := claudeSettings(t)
	c, _ := serve(t, cfg)
	s := claudeSession(t, c, nil)
	k := startTurn(t, c, s.ID, scriptOf(`[{"tool":"Bash","input":{"command":"sleep 5; echo a >> f"}},{"say":"not steered"}]`))
	k.until(holdfast.EventToolStarted)
	if _, err := c.Send(t.Context(), s.ID, holdfast.SendMessage{Text: scriptOf(`[{"say":"steered"}]`), Mode: "steer"}); err != nil {
		t.Fatal(err)
	}
	joined := k.until(holdfast.EventMessageUser)
	if typ, end := k.end(); typ != holdfast.EventTurnCompleted {
		t.Errorf("%s %+v", typ, end)
	}
	// The CLI hands it on with the tool's outcome.
	said := logged[holdfast.AssistantMessage](t, c, s.ID, holdfast.EventMessageAssistant)
	if last := said[len(said)-1]; last.Seen != joined.Seq {
		t.Errorf("the answer knows the log up to %d, the message is %d", last.Seen, joined.Seq)
	}
	k = startTurn(t, c, s.ID, scriptOf(`[{"say":"now","tools":[{"tool":"Bash","input":{"command":"sleep 100; echo b >> f"}}]},{"say":"never"}]`))
	k.until(holdfast.EventToolStarted)
	// The CLI writes its transcript a little after it acts. If it is interrupted before it
	// has written a prompt, it loses the prompt.
	testkit.Eventually(t, "the prompt is in the CLI's transcript", func() bool { return transcribed(cfg, s.ID, "sleep 100") })
	if _, err := c.Interrupt(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	// In less time than the command would take.
	if typ, end := k.end(); typ != holdfast.EventTurnInterrupted {
		t.Errorf("%s %+v", typ, end)
	}
	f := logged[holdfast.ToolFinished](t, c, s.ID, holdfast.EventToolFinished)
	if len(f) != 2 || f[1].Outcome != holdfast.ExitCanceled {
		t.Errorf("finished %+v", f)
	}
	if end := turn(t, c, s.ID, "and?"); !strings.Contains(end.Result, "You have sent 3 messages") || effects(cfg, s.ID) != "a\n" {
		t.Errorf("afterwards: %q, effects %q", end.Result, effects(cfg, s.ID))
	}
}

// TestClaudeModelErrors: what a model's provider does to the CLI ends a turn in words
// that its reader can act on, and the session goes on.
//
// WS-R98, WS-N10, WS-N17.
func TestClaudeModelErrors(t *testing.T) {
	testkit.Long(t)
	cfg := claudeSettings(t)
	cfg.Models.Park = config.Off
	c, _ := serve(t, cfg)
	s := claudeSession(t, c, nil)
	for _, k := range []struct {
		steps   string
		typ     holdfast.EventType
		kind    holdfast.Kind
		says    string
		hinted  bool
		notices string
	}{
		{`[{"error":"authentication","times":99}]`, holdfast.EventTurnFailed, holdfast.KindUnauthenticated, "401", true, "model.retry"},
		{`[{"error":"invalid","times":99}]`, holdfast.EventTurnFailed, holdfast.KindInvalid, "400", false, ""},
		{`[{"error":"overloaded","times":99}]`, holdfast.EventTurnFailed, holdfast.KindUnavailable, "529", true, "model.retry"},
		{`[{"error":"rate_limit","retry_after":3600,"times":99}]`, holdfast.EventTurnFailed, holdfast.KindBusy, "429", true, ""},
		{`[{"error":"rate_limit","retry_after":1},{"say":"after a limit"}]`, holdfast.EventTurnCompleted, "", "after a limit", false, "model.retry"},
		{`[{"say":"a b c d","chunks":4,"cut":true},{"say":"never"}]`, holdfast.EventTurnCompleted, "", "a b c d", false, "model.retry"},
		{`[{"say":"a b c d","chunks":4,"error":"overloaded","late":true},{"say":"never"}]`, holdfast.EventTurnCompleted, "", "a b c d", false, "model.retry"},
	} {
		typ, end := startTurn(t, c, s.ID, scriptOf(k.steps)).end()
		if typ != k.typ || end.Kind != k.kind || !strings.Contains(end.Message+end.Result, k.says) || (end.Hint != "") != k.hinted {
			t.Errorf("%s: %s %+v", k.steps, typ, end)
		}
		var codes []string
		for _, n := range logged[holdfast.Notice](t, c, s.ID, holdfast.EventNotice) {
			codes = append(codes, n.Code)
		}
		if k.notices != "" && !slices.Contains(codes, k.notices) {
			t.Errorf("%s: notices %v", k.steps, codes)
		}
	}
	if end := turn(t, c, s.ID, "and?"); !strings.Contains(end.Result, "You have sent ") {
		t.Errorf("afterwards: %q", end.Result)
	}
	var fresh int
	for _, a := range logged[holdfast.AgentStarted](t, c, s.ID, holdfast.EventAgentStarted) {
		if a.Tier != holdfast.TierLive {
			fresh++
		}
	}
	if fresh != 1 {
		t.Errorf("the CLI was started %d times", fresh)
	}
}

// TestClaudeParks: a limit that lasts parks the turn until a time that everybody sees,
// and the turn goes on after it; an interrupt ends the wait.
func TestClaudeParks(t *testing.T) {
	cfg := claudeSettings(t)
	c, _ := serve(t, cfg)
	s := claudeSession(t, c, nil)
	k := startTurn(t, c, s.ID, scriptOf(`[{"error":"rate_limit","retry_after":3600,"times":99}]`))
	var n holdfast.Notice
	for n.Code != "model.parked" {
		n = payload[holdfast.Notice](t, k.until(holdfast.EventNotice))
	}
	if n.Until == nil || time.Until(*n.Until) < 50*time.Minute || time.Until(*n.Until) > time.Hour {
		t.Errorf("parked until %v", n.Until)
	}
	if _, err := c.Interrupt(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	if typ, end := k.end(); typ != holdfast.EventTurnInterrupted {
		t.Errorf("%s %+v", typ, end)
	}
	// The CLI tries again by itself as long as it has patience; then the turn waits.
	k = startTurn(t, c, s.ID, scriptOf(`[{"error":"rate_limit","retry_after":1,"times":6}]`))
	for n.Code = ""; n.Code != "model.parked"; {
		n = payload[holdfast.Notice](t, k.until(holdfast.EventNotice))
	}
	if typ, end := k.end(); typ != holdfast.EventTurnCompleted || end.Result == "" {
		t.Errorf("%s %+v", typ, end)
	}
}

// TestClaudeIsNotThere: a server without the CLI refuses sessions with it, and says how to
// get it. A session whose CLI goes away later fails its turn in the same words, and goes on
// once it is back.
func TestClaudeIsNotThere(t *testing.T) {
	cfg := settings(t, "local")
	c, _ := serve(t, cfg)
	const hint = "holdfast runtime install claude"
	_, err := c.CreateSession(t.Context(), holdfast.CreateSession{Runtime: "claude"}, "")
	refusedWith(t, err, holdfast.KindUnavailable, "not installed", hint)
	installed := filepath.Join(cfg.Data, "runtimes", "claude")
	if out, err := exec.Command("cp", "-al", filepath.Join(testkit.Runtimes(t, "claude"), "claude"), installed).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := claudeSession(t, c, nil)
	if err := os.Rename(installed, installed+".away"); err != nil {
		t.Fatal(err)
	}
	typ, end := startTurn(t, c, s.ID, "hello").end()
	if typ != holdfast.EventTurnFailed || end.Kind != holdfast.KindUnavailable || end.Hint != hint {
		t.Errorf("%s %+v", typ, end)
	}
	if err := os.Rename(installed+".away", installed); err != nil {
		t.Fatal(err)
	}
	if end := turn(t, c, s.ID, "hello again"); !strings.Contains(end.Result, "hello again") {
		t.Errorf("installed: %+v", end)
	}
}

// TestClaudeWarm: the CLI of a new session is there before its first message, which it
// answers; of too many the one that waits longest is stopped.
func TestClaudeWarm(t *testing.T) {
	cfg := claudeSettings(t)
	cfg.Claude.Warm = 1
	c, _ := serve(t, cfg)
	started := func(id holdfast.SessionID) []holdfast.AgentStarted {
		return logged[holdfast.AgentStarted](t, c, id, holdfast.EventAgentStarted)
	}
	first := claudeSession(t, c, nil)
	testkit.Eventually(t, "the first agent is there", func() bool { return len(started(first.ID)) == 1 })
	second := claudeSession(t, c, nil)
	testkit.Eventually(t, "the second agent is there, the first is stopped", func() bool {
		return len(started(second.ID)) == 1 && len(logged[holdfast.BoxEnded](t, c, first.ID, holdfast.EventBoxStopped)) == 1
	})
	if end := turn(t, c, second.ID, "hello"); !strings.Contains(end.Result, "You have sent 1 messages") {
		t.Errorf("%q", end.Result)
	}
	if all := started(second.ID); len(all) != 2 || all[0].Tier != holdfast.TierFresh || all[1].Tier != holdfast.TierLive || all[0].Call != all[1].Call {
		t.Errorf("%+v", all)
	}
	if end := turn(t, c, first.ID, "hello"); !strings.Contains(end.Result, "You have sent 1 messages") {
		t.Errorf("%q", end.Result)
	}
	// A message that comes at once waits for the agent that is being started.
	third := claudeSession(t, c, nil)
	turn(t, c, third.ID, "hello")
	if all := started(third.ID); len(all) != 2 || all[0].Call != all[1].Call {
		t.Errorf("%+v", all)
	}
}
