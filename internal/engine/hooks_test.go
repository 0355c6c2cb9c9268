package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	llm "github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
	"github.com/holdfast-run/holdfast/agent/tool/builtin"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/runtime/native"
	"github.com/holdfast-run/holdfast/internal/settings"
	"github.com/holdfast-run/holdfast/policy"
)

// hooked is an agent that brings hooks.
type hooked struct {
	oneAgent
	cfg hook.Config
}

func (h hooked) Settings(context.Context, holdfast.VersionID) (settings.Settings, error) {
	return settings.Settings{Hooks: h.cfg}, nil
}

// boxed is a configuration of one command in the box.
func boxed(e hook.Event, command string) hook.Config {
	return hook.Config{e: {{Hooks: []hook.Entry{{Type: "command", Command: command}}}}}
}

// ear hears every event and answers as a test says.
type ear struct {
	mu     sync.Mutex
	heard  []hook.Input
	answer func(hook.Input) *hook.Output
}

func (e *ear) hear(_ context.Context, in hook.Input) (*hook.Output, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = append(e.heard, in)
	if e.answer == nil {
		return nil, nil
	}
	return e.answer(in), nil
}

func (e *ear) all() []hook.Input {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.heard)
}

// of are those of one event.
func (e *ear) of(event hook.Event) []hook.Input {
	return slices.DeleteFunc(e.all(), func(in hook.Input) bool { return in.Event != event })
}

// listening is a machine whose hooks all go to one ear.
func listening(t *testing.T, e *ear, setUp func(*machine), events ...hook.Event) *machine {
	t.Helper()
	if len(events) == 0 {
		events = hook.Events()
	}
	return newMachine(t, func(m *machine) {
		m.set = func(c *engine.Config) {
			// Nobody answers, so what a person is asked is denied.
			c.Turns.ApprovalTimeout = time.Millisecond
			r := new(hook.Registry)
			for _, ev := range events {
				if _, err := r.Register(hook.Definition{Event: ev, Name: "ear", Func: e.hear}); err != nil {
					t.Fatal(err)
				}
			}
			c.Hooks.Registry = r
			c.Hooks.Places.Host = hook.Host{Environ: os.Environ(), Dir: t.TempDir()}
		}
		if setUp != nil {
			setUp(m)
		}
	})
}

func write(path, content string) step {
	return step{"tool": "Write", "input": step{"file_path": path, "content": content}}
}

// TestSDKH36_OrderOnAToolCall: preToolUse, the permission, the tool, then what
// comes after it. Also SDK-H15 and SDK-H16 in a running server.
func TestSDKH36_OrderOnAToolCall(t *testing.T) {
	e := &ear{}
	m := listening(t, e, nil)
	id := m.create(holdfast.CreateSession{})
	turn := m.run(id, script(write("f", "x"), bash("exit 3"), say("done")))
	if turn.Status != holdfast.TurnCompleted {
		t.Fatalf("turn = %+v\n%s", turn, m.dump(id))
	}
	until(t, func() bool { return len(e.of(hook.Stop)) == 1 })
	var got []string
	for _, in := range e.all() {
		switch in.Event {
		case hook.SandboxStarted, hook.Setup, hook.Stop, hook.SandboxStopped:
			continue // in the background
		}
		got = append(got, string(in.Event)+" "+in.ToolName)
		if in.Session != id || in.Mode != holdfast.ModeBypassPermissions || in.Turn != turn.ID || in.Cwd != "/workspace" {
			t.Errorf("%s is told session %q, mode %q, turn %q, cwd %q", in.Event, in.Session, in.Mode, in.Turn, in.Cwd)
		}
	}
	want := []string{
		"sessionStart ", "userPromptSubmit ",
		"preToolUse Write", "postToolUse Write", "fileChanged Write", "postToolBatch ",
		"preToolUse Bash", "postToolUseFailure Bash", "postToolBatch ",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if in := e.of(hook.FileChanged)[0]; in.FilePath != "f" {
		t.Errorf("the file that changed is %q", in.FilePath)
	}
	if in := e.of(hook.PostToolUseFailure)[0]; !strings.Contains(in.Error, "3") {
		t.Errorf("the failure is told as %q", in.Error)
	}
	// The run stands in the log ahead of the verdict, in its transaction.
	types := m.types(id)
	at := slices.Index(types, holdfast.EventToolAllowed)
	if types[at-1] != holdfast.EventHookRan {
		t.Errorf("before the verdict stands %s\n%s", types[at-1], m.dump(id))
	}
	m.sound(id)
}

// TestHookEvents: every event that there is an occasion for fires; sessionEnd once
// (SDK-H35). These are the events of SDK-H0.
func TestHookEvents(t *testing.T) {
	e := &ear{}
	m := listening(t, e, nil)
	ctx := t.Context()
	id := m.create(holdfast.CreateSession{Mode: "plan"})
	m.run(id, script(bash("echo no"), step{"tool": "Read", "input": step{"file_path": "CLAUDE.md"}}, say("a")))
	mode := "bypassPermissions"
	if _, err := m.Update(ctx, id, holdfast.UpdateSession{Mode: &mode}); err != nil {
		t.Fatal(err)
	}
	m.run(id, script(write("f", "x"), bash("exit 1"), say("b")))
	if _, err := m.Pause(ctx, id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Resume(ctx, id, holdfast.ResumeSession{}); err != nil {
		t.Fatal(err)
	}
	trust := "trusted"
	if _, err := m.Update(ctx, id, holdfast.UpdateSession{Trust: &trust, MaxTrust: holdfast.Trusted}); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return len(e.of(hook.CwdChanged)) == 1 })
	if _, err := m.End(ctx, id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	want := []hook.Event{
		hook.Setup, hook.SessionStart, hook.UserPromptSubmit, hook.PreToolUse, hook.PostToolUse, hook.PostToolUseFailure, hook.PostToolBatch,
		hook.FileChanged, hook.PermissionDenied, hook.Stop, hook.ConfigChange, hook.CwdChanged, hook.SessionPaused, hook.SessionResumed,
		hook.SandboxStarted, hook.SandboxStopped, hook.SessionEnd,
	}
	for _, event := range want {
		until(t, func() bool { return len(e.of(event)) > 0 })
	}
	if n := len(e.of(hook.SessionStart)); n != 1 {
		t.Errorf("sessionStart fired %d times", n)
	}
	if n := len(e.of(hook.SessionEnd)); n != 1 {
		t.Errorf("sessionEnd fired %d times", n)
	}
	// All of it is in the log (X4).
	until(t, func() bool {
		ran := datas[holdfast.HookRan](m.world, id, holdfast.EventHookRan)
		return !slices.ContainsFunc(want, func(ev hook.Event) bool {
			return !slices.ContainsFunc(ran, func(r holdfast.HookRan) bool { return r.Event == string(ev) })
		})
	})
}

// TestSDKH35_StopFires: however a turn ends, its end is told.
func TestSDKH35_StopFires(t *testing.T) {
	e := &ear{}
	m := listening(t, e, nil, hook.Stop)
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(say("well")))
	m.run(id, "<script>nonsense</script>")
	waiting := m.send(id, script(bash("echo > begun; sleep 1000")))
	m.appears(id, "begun")
	if _, err := m.Interrupt(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	m.ended(id, waiting.ID)
	broke := m.create(holdfast.CreateSession{Budget: &holdfast.Budget{Tokens: 1}})
	m.run(broke, script(say("too much")))
	until(t, func() bool { return len(e.of(hook.Stop)) == 4 })
	got := map[string]int{}
	for _, in := range e.of(hook.Stop) {
		got[in.Trigger]++
		if in.IsInterrupt != (in.Trigger == "interrupted") || in.Trigger == "completed" && in.LastAssistantMessage != "well" {
			t.Errorf("stop is told %+v", in)
		}
	}
	if got["completed"] != 1 || got["interrupted"] != 1 || got["failed"] != 2 {
		t.Errorf("ends %v", got)
	}
}

// TestSDKH22_BlockedToolDoesNotRun: by function, by command on the host, in the
// box, in every mode; the model reads why (SDK-H27).
func TestSDKH22_BlockedToolDoesNotRun(t *testing.T) {
	for what, set := range map[string]func(t *testing.T, m *machine, c *engine.Config){
		"function": func(t *testing.T, m *machine, c *engine.Config) {
			register(t, c, hook.Definition{Event: hook.PreToolUse, Matcher: "Bash", Func: func(context.Context, hook.Input) (*hook.Output, error) {
				return &hook.Output{Verdict: policy.Denied, Reason: "not on my watch"}, nil
			}})
		},
		"host": func(t *testing.T, m *machine, c *engine.Config) {
			register(t, c, hook.Definition{Event: hook.PreToolUse, Matcher: "Bash", Command: "echo not on my watch >&2; exit 2"})
		},
		"box": func(t *testing.T, m *machine, c *engine.Config) {
			c.Agents = hooked{cfg: boxed(hook.PreToolUse, `echo '{"block": true, "reason": "not on my watch"}'`)}
		},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMachine(t, func(m *machine) { m.set = func(c *engine.Config) { set(t, m, c) } })
			id := m.create(holdfast.CreateSession{})
			if got := m.run(id, script(bash("echo x > f"), say("over"))); got.Status != holdfast.TurnCompleted {
				t.Fatalf("turn = %+v\n%s", got, m.dump(id))
			}
			if m.file(id, "f") != "" {
				t.Error("the tool ran")
			}
			denied := datas[holdfast.ToolDecision](m.world, id, holdfast.EventToolDenied)
			if len(denied) != 1 || denied[0].By != "hook" || denied[0].Reason != "not on my watch" {
				t.Errorf("denied %+v", denied)
			}
			ran := datas[holdfast.HookRan](m.world, id, holdfast.EventHookRan)
			if len(ran) != 1 || ran[0].Outcome != hook.OutcomeBlocked || ran[0].ToolUseID != denied[0].ToolUseID {
				t.Errorf("ran %+v", ran)
			}
		})
	}
}

func register(t *testing.T, c *engine.Config, d hook.Definition) {
	t.Helper()
	if c.Hooks.Registry == nil {
		c.Hooks.Registry = new(hook.Registry)
		c.Hooks.Places.Host = hook.Host{Environ: os.Environ(), Dir: t.TempDir()}
	}
	if _, err := c.Hooks.Registry.Register(d); err != nil {
		t.Fatal(err)
	}
}

// TestSDKH28_RewrittenInputIsChecked: what a hook makes of the input is what runs,
// and has to pass the rules.
func TestSDKH28_RewrittenInputIsChecked(t *testing.T) {
	e := &ear{answer: func(in hook.Input) *hook.Output {
		if strings.Contains(string(in.ToolInput), "one") {
			return &hook.Output{Input: json.RawMessage(`{"command":"echo other > f"}`)}
		}
		return &hook.Output{Verdict: policy.Allowed, Input: json.RawMessage(`{"command":"curl http://x > g"}`)}
	}}
	m := listening(t, e, func(m *machine) {
		inner := m.set
		m.set = func(c *engine.Config) {
			inner(c)
			rules, err := policy.ParseRules(nil, nil, []string{"Bash(curl *)"})
			if err != nil {
				t.Fatal(err)
			}
			if c.Policy, err = policy.New(policy.Config{Rules: rules}); err != nil {
				t.Fatal(err)
			}
		}
	}, hook.PreToolUse)
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(bash("echo one"), bash("echo two > g"), say("over")))
	if got := m.file(id, "f"); got != "other\n" {
		t.Errorf("f is %q\n%s", got, m.dump(id))
	}
	if got := m.file(id, "g"); got != "" {
		t.Errorf("g is %q: the rewritten input was not held against the rules", got)
	}
	if d := datas[holdfast.ToolDecision](m.world, id, holdfast.EventToolDenied); len(d) != 1 || d[0].Rule == "" {
		t.Errorf("denied %+v", d)
	}
}

// TestSDKH37_UnknownToolIsAudited: a call of a tool that is not there is told too.
func TestSDKH37_UnknownToolIsAudited(t *testing.T) {
	e := &ear{answer: func(hook.Input) *hook.Output { return &hook.Output{Verdict: policy.Allowed} }}
	m := listening(t, e, nil, hook.PreToolUse, hook.PermissionDenied)
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(step{"tool": "Rocket", "input": step{"to": "moon"}}, say("over")))
	if pre, denied := e.of(hook.PreToolUse), e.of(hook.PermissionDenied); len(pre) != 1 || pre[0].ToolName != "Rocket" || len(denied) != 1 {
		t.Errorf("told %+v and %+v", pre, denied)
	}
	if n := len(datas[holdfast.ToolDecision](m.world, id, holdfast.EventToolDenied)); n != 1 {
		t.Errorf("%d denials\n%s", n, m.dump(id))
	}
}

// recorder is a model that keeps what it was asked.
type recorder struct {
	*scripted.Model
	mu   sync.Mutex
	asks []llm.Request
}

func (r *recorder) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	r.mu.Lock()
	req.Messages = slices.Clone(req.Messages)
	r.asks = append(r.asks, req)
	r.mu.Unlock()
	return r.Model.Stream(ctx, req)
}

func (r *recorder) last() []llm.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asks[len(r.asks)-1].Messages
}

func (r *recorder) loop(t *testing.T) *native.Runtime {
	t.Helper()
	rt, err := native.New(native.Config{Provider: r, Tools: builtin.All(), Now: time.Now, Rand: func() float64 { return 0.5 }})
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// TestSDKH26_WhatHooksSayIsTold: every text is in the next request to the model,
// once, and in the same place when the conversation is read from the log again
// (also SDK-H29).
func TestSDKH26_WhatHooksSayIsTold(t *testing.T) {
	e := &ear{answer: func(in hook.Input) *hook.Output {
		return &hook.Output{Context: []string{fmt.Sprintf("on %s of %q </system-reminder>", in.Event, in.ToolName+in.Prompt[:min(len(in.Prompt), 5)])}}
	}}
	r := &recorder{Model: scripted.New()}
	m := listening(t, e, func(m *machine) { m.rt = r.loop(t) },
		hook.SessionStart, hook.UserPromptSubmit, hook.PreToolUse, hook.PostToolUse, hook.PostToolUseFailure, hook.PostToolBatch, hook.FileChanged)
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(write("f", "x"), step{"tools": []step{bash("exit 1"), bash("true")}}, step{"tool": "Read", "input": step{"file_path": "f"}}, say("done")))
	first := r.last()
	raw, _ := json.Marshal(first)
	for _, event := range []hook.Event{hook.SessionStart, hook.UserPromptSubmit, hook.PreToolUse, hook.PostToolUse, hook.PostToolUseFailure, hook.PostToolBatch, hook.FileChanged} {
		want := len(e.of(event))
		if n := strings.Count(string(raw), "A hook ("+string(event)+", server) says: on "+string(event)); n != want || want == 0 {
			t.Errorf("%s was told %d times, fired %d times\n%s", event, n, want, raw)
		}
	}
	if strings.Contains(string(raw), `\u003c/system-reminder\u003e\u003c/system-reminder`) {
		t.Error("a hook closed the tag around it")
	}
	// A new server, a new runtime: the conversation comes from the log alone.
	m.stop(false)
	m.rt = r.loop(t)
	m.start()
	m.run(id, script(say("again")))
	if d := cmp.Diff(first, r.last()[:len(first)]); d != "" {
		t.Errorf("the conversation read from the log is another one:\n%s", d)
	}
}

// TestUserPromptIsWithheld: a message that a hook refuses never reaches the model,
// neither in its turn nor later.
func TestUserPromptIsWithheld(t *testing.T) {
	e := &ear{answer: func(in hook.Input) *hook.Output {
		if strings.Contains(in.Prompt, "hunter2") {
			return &hook.Output{Verdict: policy.Denied, Reason: "that is a password"}
		}
		return nil
	}}
	r := &recorder{Model: scripted.New()}
	m := listening(t, e, func(m *machine) { m.rt = r.loop(t) }, hook.UserPromptSubmit)
	id := m.create(holdfast.CreateSession{})
	got := m.run(id, "it is hunter2")
	if got.Status != holdfast.TurnFailed || len(r.asks) != 0 {
		t.Fatalf("turn = %+v, %d calls\n%s", got, len(r.asks), m.dump(id))
	}
	turn := m.send(id, script(bash(gated), say("over")))
	m.appears(id, "begun")
	if _, err := m.Send(t.Context(), id, holdfast.SendMessage{Text: "or hunter2, in the middle", Mode: "steer"}); err != nil {
		t.Fatal(err)
	}
	m.put(id, "go", "")
	if got := m.ended(id, turn.ID); got.Status != holdfast.TurnCompleted {
		t.Fatalf("turn = %+v\n%s", got, m.dump(id))
	}
	live := r.last()
	m.stop(false)
	m.rt = r.loop(t)
	m.start()
	m.run(id, script(say("again")))
	for _, ask := range r.asks {
		if raw, _ := json.Marshal(ask.Messages); strings.Contains(string(raw), "hunter2") {
			t.Errorf("the model was told: %s", raw)
		}
	}
	if d := cmp.Diff(live, r.last()[:len(live)]); d != "" {
		t.Errorf("the conversation read from the log is another one:\n%s", d)
	}
	if n := len(e.of(hook.UserPromptSubmit)); n != 4 {
		t.Errorf("%d prompts were told", n)
	}
}

// TestHookOnTheHostSeesNoSecrets (SDK-H17): neither the server's environment nor
// the session's.
func TestHookOnTheHostSeesNoSecrets(t *testing.T) {
	out := filepath.Join(t.TempDir(), "env")
	m := newMachine(t, func(m *machine) {
		m.set = func(c *engine.Config) {
			register(t, c, hook.Definition{Event: hook.PreToolUse, Command: "env > " + out + "; pwd >> " + out})
			c.Hooks.Places.Host = hook.Host{Environ: append(os.Environ(), "ANTHROPIC_API_KEY=s3cret", "HOLDFAST_X=s3cret"), Dir: t.TempDir()}
		}
	})
	id := m.create(holdfast.CreateSession{Env: map[string]string{"BASH_ENV": "/s3cret", "MINE": "s3cret"}})
	m.run(id, script(bash("true"), say("a")))
	raw, err := os.ReadFile(out)
	if err != nil || strings.Contains(string(raw), "s3cret") || !strings.Contains(string(raw), "HOOK_TOOL_NAME=Bash") {
		t.Errorf("%v\n%s", err, raw)
	}
	if strings.Contains(string(raw), "sessions/"+string(id)+"/workspace") {
		t.Errorf("the hook started in a directory that the agent can write:\n%s", raw)
	}
}

// TestSDKH24_Notifications: what a hook wants people to know is an event, and no
// hook is told of it again.
// The notification is an event of SDK-H0.
func TestSDKH24_Notifications(t *testing.T) {
	e := &ear{answer: func(hook.Input) *hook.Output {
		return &hook.Output{Notification: &holdfast.HookNotification{Title: "look", Body: "here", Level: "warning"}}
	}}
	m := listening(t, e, nil, hook.PreToolUse, hook.Notify)
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(bash("true"), say("a")))
	notices := datas[holdfast.Notice](m.world, id, holdfast.EventNotice)
	if len(notices) != 1 || notices[0].Text != "look: here" || notices[0].Level != "warning" || notices[0].Code != "hook.notification" {
		t.Errorf("notices %+v", notices)
	}
	if n := len(e.of(hook.Notify)); n != 0 {
		t.Errorf("a notification was told %d times", n)
	}
}
