package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// scriptOf returns a message that makes the scripted model take steps.
func scriptOf(t *testing.T, steps ...map[string]any) string {
	t.Helper()
	b, err := json.Marshal(steps)
	if err != nil {
		t.Fatal(err)
	}
	return "<script>" + string(b) + "</script>"
}

func bashStep(command string) map[string]any {
	return map[string]any{"tool": "Bash", "input": map[string]any{"command": command}}
}

func (p *process) send(id holdfast.SessionID, text string) holdfast.TurnID {
	p.t.Helper()
	sent, err := p.Client.Send(p.t.Context(), id, holdfast.SendMessage{Text: text})
	if err != nil {
		p.t.Fatal(err)
	}
	return sent.Turn.ID
}

// finished waits for a turn's end.
func (p *process) finished(id holdfast.SessionID, turn holdfast.TurnID) holdfast.Turn {
	p.t.Helper()
	var out holdfast.Turn
	testkit.Eventually(p.t, "the turn ends", func() bool {
		got, err := p.Turn(p.t.Context(), id, turn)
		if err != nil {
			return false
		}
		out = got
		return got.Status == holdfast.TurnCompleted || got.Status == holdfast.TurnFailed || got.Status == holdfast.TurnInterrupted
	})
	return out
}

// denials are the reasons of the denied calls of a session.
func (p *process) denials(id holdfast.SessionID) []string {
	p.t.Helper()
	var out []string
	for ev, err := range p.AllEvents(p.t.Context(), id, 0) {
		if err != nil {
			p.t.Fatal(err)
		}
		var d holdfast.ToolDecision
		if ev.Type == holdfast.EventToolDenied && ev.Decode(&d) == nil {
			out = append(out, d.By+": "+d.Reason)
		}
	}
	return out
}

// TestADeepCommandDoesNotEndTheServer repeats a real crash: 250,000 opening brackets
// where a rule for Bash makes the server read the command (HZ-19).
func TestADeepCommandDoesNotEndTheServer(t *testing.T) {
	p := launchOn(t, testkit.BaseDir(t), "mem", holdfast.Untrusted, "--set", "permissions.deny=Bash(curl *)")
	id := p.session()
	turn := p.finished(id, p.send(id, scriptOf(t, bashStep(strings.Repeat("(", 250_000)), map[string]any{"say": "x"})))
	if turn.Status != holdfast.TurnCompleted {
		t.Errorf("%+v\n%s", turn, p.log.String())
	}
	if d := p.denials(id); len(d) != 1 || !strings.Contains(d[0], "cannot be read") {
		t.Errorf("%q", d)
	}
	input, _ := json.Marshal(map[string]string{"command": strings.Repeat("(", 250_000)})
	got, err := p.ExplainPolicy(t.Context(), id, holdfast.ExplainPolicy{Tool: "Bash", Input: input})
	if err != nil || got.Verdict != "deny" {
		t.Errorf("%+v, %v", got.Verdict, err)
	}
}

// TestACallThatTheServerDiesOfTwiceIsDenied kills a real server twice while it
// judges one call. The third one denies it, and the turn goes on.
func TestACallThatTheServerDiesOfTwiceIsDenied(t *testing.T) {
	entered, leave := make(chan struct{}, 8), make(chan struct{})
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-leave
	}))
	defer hook.Close()
	defer close(leave)
	data := testkit.BaseDir(t)
	settings := settingsFile(t, map[string]any{"hooks": map[string]any{"preToolUse": []any{
		map[string]any{"matcher": "Bash", "hooks": []any{map[string]any{"type": "http", "url": hook.URL, "timeout": 60000}}},
	}}})
	start := func() *process {
		return launchOn(t, data, "mem", holdfast.Untrusted, "--config", settings)
	}
	p := start()
	id := p.session()
	turn := p.send(id, scriptOf(t, bashStep("true"), map[string]any{"say": "on"}))
	for range 2 {
		<-entered
		p.signal(syscall.SIGKILL)
		p.wait()
		p = start()
	}
	if end := p.finished(id, turn); end.Status != holdfast.TurnCompleted || end.Result != "on" {
		t.Errorf("%+v\n%s", end, p.log.String())
	}
	if d := p.denials(id); len(d) != 1 || !strings.Contains(d[0], "two times in a row") {
		t.Errorf("%q", d)
	}
	if n := len(entered); n != 0 {
		t.Errorf("the call was judged %d times more", n)
	}
}
