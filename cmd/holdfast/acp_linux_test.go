package main

import (
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

const madeBy = `<script>[{"think":"hmm","say":"","tool":"Bash","input":{"command":"echo made > %s; cat %[1]s"}},{"say":"did %[1]s","chunks":5}]</script>`

func script(name string) string { return fmt.Sprintf(madeBy, name) }

// TestACPTurns: an editor makes a session, prompts, answers questions in all four
// ways, changes the mode; what it shows is what the log has.
func TestACPTurns(t *testing.T) {
	testkit.Long(t)
	p := served(t)
	d := p.edit("--mode", "default", "--models", "scripted,other")
	made := d.open()
	id := holdfast.SessionID(made.SessionId)
	if made.Modes.CurrentModeId != "default" || len(made.Modes.AvailableModes) != 6 || len(made.Models.AvailableModels) != 2 {
		t.Errorf("%+v %+v", made.Modes, made.Models)
	}
	d.answering("allow_once")
	if res := d.ask(made.SessionId, script("a")); res.StopReason != acp.StopReasonEndTurn || res.Usage == nil || res.Usage.TotalTokens == 0 {
		t.Errorf("%+v", res)
	}
	d.mu.Lock()
	first := d.updates[0].Update.AgentMessageChunk
	if first == nil || !strings.Contains(first.Content.Text.Text, "not in the editor's /home/me/project") {
		t.Errorf("the first words are %+v", first)
	}
	asked := d.asked[0]
	d.mu.Unlock()
	if len(asked.Options) != 3 || *asked.ToolCall.Title != "Bash echo made > a; cat a" {
		t.Errorf("asked %+v", asked)
	}
	d.answering("reject_once")
	d.ask(made.SessionId, script("b"))
	if p.file(id, "b") != "" || p.file(id, "a") != "made\n" {
		t.Error("a denied call ran, or an allowed one did not")
	}
	// A call with a rule that says just that may be allowed for longer.
	always := `<script>[{"tool":"Bash","input":{"command":"mkdir c"}},{"tool":"Bash","input":{"command":"mkdir c"}},{"say":"through"}]</script>`
	d.answering("allow_always")
	n := d.questions()
	d.ask(made.SessionId, always)
	if got := d.questions() - n; got != 1 {
		t.Errorf("asked %d times about what is always allowed", got)
	}
	never := `<script>[{"tool":"Bash","input":{"command":"mkdir d; true"}},{"tool":"Bash","input":{"command":"mkdir d; true"}},{"say":"no"}]</script>`
	d.answering("reject_always")
	n = d.questions()
	d.ask(made.SessionId, never)
	if got := d.questions() - n; got != 1 || p.file(id, "d") != "" {
		t.Errorf("asked %d times about what is always rejected", got)
	}
	if _, err := d.conn.SetSessionMode(t.Context(), acp.SetSessionModeRequest{SessionId: made.SessionId, ModeId: "bypassPermissions"}); err != nil {
		t.Error(err)
	}
	if _, err := d.conn.SetSessionMode(t.Context(), acp.SetSessionModeRequest{SessionId: made.SessionId, ModeId: "nothing"}); err == nil || !strings.Contains(err.Error(), "plan") {
		t.Errorf("a mode that is none: %v", err)
	}
	for model, ok := range map[acp.UnstableModelId]bool{"scripted": true, "nobody/nothing": false} {
		_, err := d.conn.UnstableSetSessionModel(t.Context(), acp.UnstableSetSessionModelRequest{SessionId: made.SessionId, ModelId: model})
		if (err == nil) != ok {
			t.Errorf("the model %s: %v", model, err)
		}
	}
	n = d.questions()
	d.ask(made.SessionId, script("e"))
	if d.questions() != n || p.file(id, "e") != "made\n" {
		t.Error("bypassPermissions asks")
	}
	testkit.Eventually(t, "the editor hears of the mode", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, u := range d.updates {
			if m := u.Update.CurrentModeUpdate; m != nil && m.CurrentModeId == "bypassPermissions" {
				return true
			}
		}
		return false
	})
	d.matches(p, made.SessionId, false)
	if d.story().user != "" {
		t.Error("the editor's own words come back to it")
	}
}

// TestACPCancel: a cancelled prompt ends as such, also when the cancel comes right
// behind it; the session stays usable.
func TestACPCancel(t *testing.T) {
	p := served(t)
	d := p.edit("--mode", "bypassPermissions")
	id := d.open().SessionId
	if res := d.ask(id, `<script>[{"say":"begun","chunks":2,"delay_ms":1},{"say":"x"}]</script>`); res.StopReason != acp.StopReasonEndTurn {
		t.Error(res)
	}
	ended := d.asks(id, `<script>[{"tool":"Bash","input":{"command":"echo line > log; sleep 600"}}]</script>`)
	testkit.Eventually(t, "the tool runs", func() bool { return p.file(holdfast.SessionID(id), "log") != "" })
	if err := d.conn.Cancel(t.Context(), acp.CancelNotification{SessionId: id}); err != nil {
		t.Fatal(err)
	}
	if res := <-ended; res.StopReason != acp.StopReasonCancelled {
		t.Error(res)
	}
	// In one write, as fast as an editor can.
	d.raw(fmt.Sprintf(`{"jsonrpc":"2.0","id":"own","method":"session/prompt","params":{"sessionId":%q,"prompt":[{"type":"text","text":"<script>[{\"stall_ms\":600000}]</script>"}]}}
{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%[1]q}}
`, id))
	testkit.Eventually(t, "the turn is interrupted", func() bool {
		turns, err := p.Turns(t.Context(), holdfast.SessionID(id), 2, 0)
		return err == nil && len(turns) == 1 && turns[0].Status == holdfast.TurnInterrupted
	})
	if res := d.ask(id, "and now"); res.StopReason != acp.StopReasonEndTurn {
		t.Error(res)
	}
	d.sees("You have sent")
}

func (d *editor) raw(s string) {
	d.t.Helper()
	if _, err := io.WriteString(d.in, s); err != nil {
		d.t.Fatal(err)
	}
}

// TestACPLoad: after both the server and holdfast acp were killed, a new one loads
// all that was said, once, and goes on.
func TestACPLoad(t *testing.T) {
	p := served(t)
	d := p.edit("--mode", "default")
	made := d.open()
	id := holdfast.SessionID(made.SessionId)
	d.answering("allow_once")
	d.ask(made.SessionId, "größer "+strings.Repeat("wörter ", 10_000))
	d.ask(made.SessionId, script("a"))
	d.mu.Lock()
	d.answer = nil
	d.mu.Unlock()
	go func() {
		// Killed before its answer.
		_, _ = d.conn.Prompt(t.Context(), acp.PromptRequest{SessionId: made.SessionId, Prompt: []acp.ContentBlock{acp.TextBlock(script("b"))}})
	}()
	testkit.Eventually(t, "the second question", func() bool { return d.questions() == 2 })
	p.signal(syscall.SIGKILL)
	d.kill()

	p = p.again()
	d = p.edit()
	d.answering("allow_once")
	d.load(made.SessionId)
	d.matches(p, made.SessionId, true)
	if n := d.questions(); n != 1 || p.file(id, "b") != "made\n" {
		t.Errorf("asked %d times after the load", n)
	}
	d.ask(made.SessionId, "what was first")
	d.sees("You have sent 4 messages")

	// Loaded again in the same connection it is told anew, whole.
	d.mu.Lock()
	d.updates = nil
	d.mu.Unlock()
	d.load(made.SessionId)
	d.matches(p, made.SessionId, true)

	list, err := d.conn.ListSessions(t.Context(), acp.ListSessionsRequest{Cwd: acp.Ptr("/home/me/project")})
	if err != nil || len(list.Sessions) != 1 || list.Sessions[0].SessionId != made.SessionId || list.Sessions[0].Cwd != "/home/me/project" {
		t.Errorf("%+v %v", list, err)
	}
	if list, err = d.conn.ListSessions(t.Context(), acp.ListSessionsRequest{Cwd: acp.Ptr("/elsewhere")}); err != nil || len(list.Sessions) != 0 {
		t.Errorf("%+v %v", list, err)
	}
	if _, err := d.conn.CloseSession(t.Context(), acp.CloseSessionRequest{SessionId: made.SessionId}); err != nil {
		t.Error(err)
	}
	_, err = d.conn.Prompt(t.Context(), acp.PromptRequest{SessionId: made.SessionId, Prompt: []acp.ContentBlock{acp.TextBlock("x")}})
	if err == nil || !strings.Contains(err.Error(), "session/load") {
		t.Errorf("a prompt to a closed session: %v", err)
	}
	d.mu.Lock()
	d.updates = nil
	d.mu.Unlock()
	if _, err := d.conn.ResumeSession(t.Context(), acp.ResumeSessionRequest{SessionId: made.SessionId, Cwd: "/home/me/project"}); err != nil {
		t.Fatal(err)
	}
	d.ask(made.SessionId, "and now")
	if s := d.story(); s.user != "" || !strings.HasPrefix(s.agent, "You have sent 5 messages") {
		t.Errorf("resumed: %+v", s)
	}
}

// TestACPServerKilledInATurn: the editor's connection outlives the server; nothing
// is lost or told twice, and the prompt gets its answer.
func TestACPServerKilledInATurn(t *testing.T) {
	for _, moment := range []string{"text", "tool", "question"} {
		t.Run(moment, func(t *testing.T) {
			p := served(t)
			d := p.edit("--mode", map[bool]string{true: "default", false: "bypassPermissions"}[moment == "question"])
			id := d.open().SessionId
			text := map[string]string{
				"text":     `<script>[{"say":"one two three four five six","chunks":6,"delay_ms":1},{"say":"x"}]</script>`,
				"tool":     `<script>[{"tool":"Bash","input":{"command":"echo line >> log; until [ -e go ]; do sleep 0.05; done"}},{"say":"through","chunks":3}]</script>`,
				"question": script("a"),
			}[moment]
			ended := d.asks(id, text)
			switch moment {
			case "text":
				testkit.Eventually(t, "some text", func() bool { return d.story().agent != "" })
			case "tool":
				testkit.Eventually(t, "the tool has begun", func() bool { return p.file(holdfast.SessionID(id), "log") == "line\n" })
			case "question":
				testkit.Eventually(t, "the question", func() bool { return d.questions() == 1 })
			}
			p.signal(syscall.SIGKILL)
			p = p.again()
			switch moment {
			case "tool":
				if _, err := p.WriteFile(t.Context(), holdfast.SessionID(id), "go", strings.NewReader(""), 0); err != nil {
					t.Fatal(err)
				}
			case "question":
				page, err := p.Approvals(t.Context(), holdfast.ApprovalFilter{})
				if err != nil || len(page.Approvals) != 1 {
					t.Fatalf("%+v %v", page, err)
				}
				// Answered elsewhere: the editor's question is taken back.
				if _, err := p.AnswerApproval(t.Context(), page.Approvals[0].ID, holdfast.AnswerApproval{Decision: "allow"}); err != nil {
					t.Fatal(err)
				}
			}
			if res := <-ended; res.StopReason != acp.StopReasonEndTurn {
				t.Errorf("%+v", res)
			}
			d.matches(p, id, false)
			if moment == "question" {
				testkit.Eventually(t, "the question is withdrawn", func() bool {
					d.mu.Lock()
					defer d.mu.Unlock()
					return d.withdrawn == 1
				})
			}
		})
	}
}

// TestACPBadInput: garbage, half lines, huge lines and unknown methods are answered
// and harm nobody; what the input holds never reaches stderr raw.
func TestACPBadInput(t *testing.T) {
	p := served(t)
	d := p.edit("--mode", "bypassPermissions")
	id := d.open().SessionId
	d.raw("\x1b]0;title\x07garbage\n[]\n{\"jsonrpc\":\"2.0\",\"id\":7}\n5\n\n")
	d.raw(`{"jsonrpc":"2.0","id":"h","method":"` + strings.Repeat("x", 11<<20) + "\"}\n")
	d.raw(`{"jsonrpc":"2.0","id":"u","method":"no/such","params":{}}` + "\n")
	d.raw(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"\u001b[2J"}}` + "\n")
	d.raw(`{"jsonrpc":"2.0","id":"b","method":"session/prompt","params":[]}` + "\n")
	d.raw(`{"jsonrpc":"2.0","id":"c","method":"session/prompt"}` + "\n")
	if _, err := d.conn.LoadSession(t.Context(), acp.LoadSessionRequest{SessionId: "x", Cwd: "/", McpServers: []acp.McpServer{}}); err == nil {
		t.Error("a session that is none was loaded")
	}
	unknown := acp.SessionId("01890a5d-ac96-774b-bcce-b302099a8057")
	for _, call := range []func() error{
		func() error {
			_, err := d.conn.LoadSession(t.Context(), acp.LoadSessionRequest{SessionId: unknown, Cwd: "/", McpServers: []acp.McpServer{}})
			return err
		},
		func() error {
			_, err := d.conn.NewSession(t.Context(), acp.NewSessionRequest{Cwd: "not/absolute", McpServers: []acp.McpServer{}})
			return err
		},
		func() error {
			_, err := d.conn.Prompt(t.Context(), acp.PromptRequest{SessionId: id, Prompt: []acp.ContentBlock{acp.ImageBlock("aGk=", "image/png")}})
			return err
		},
		func() error {
			_, err := d.conn.Authenticate(t.Context(), acp.AuthenticateRequest{MethodId: "x"})
			return err
		},
	} {
		if err := call(); err == nil {
			t.Error("nonsense was taken")
		}
	}
	if res := d.ask(id, "still there"); res.StopReason != acp.StopReasonEndTurn {
		t.Error(res)
	}
	if errs := d.errs.String(); strings.ContainsAny(errs, "\x1b\x07") || len(errs) > 4000 {
		t.Errorf("stderr: %q", cut(errs, 500))
	}
	d.raw(`{"jsonrpc":"2.0","id":"half","meth`)
	_ = d.in.Close()
	<-d.done
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("ended with %d: %s", code, d.errs.String())
	}
}

// TestACPServerAway: without a server the editor is told, with the command that
// helps, and the next prompt finds one that came back.
func TestACPServerAway(t *testing.T) {
	p := served(t)
	d := p.edit()
	id := d.open().SessionId
	d.ask(id, "one")
	p.signal(syscall.SIGKILL)
	<-p.done
	_, err := d.conn.NewSession(t.Context(), acp.NewSessionRequest{Cwd: "/x", McpServers: []acp.McpServer{}})
	if err == nil || !strings.Contains(err.Error(), "holdfast serve") {
		t.Errorf("no server: %v", err)
	}
	p = p.again()
	d.ask(id, "two")
	d.sees("You have sent 2 messages")
	d.matches(p, id, false)
}
