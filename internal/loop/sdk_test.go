package loop_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/loop"
	"github.com/holdfast-run/holdfast/policy"
)

// TestSDKP15_BothInputsAreKept: a tool runs with the input that it was given instead,
// and the log has what was asked for and what ran.
func TestSDKP15_BothInputsAreKept(t *testing.T) {
	w := newWorld(t)
	w.decide = func(policy.Request) (policy.Decision, error) {
		d := policy.AllowInput(json.RawMessage(`{"file_path":"safe"}`))
		d.By = "callback"
		return d, nil
	}
	l := w.loop()
	p := &request{Provider: l.Provider}
	l.Provider = p
	if _, err := l.Run(t.Context(), script(`[{"tool":"Read","input":{"file_path":"secret"}},{"say":"x"}]`), w.env()); err != nil {
		t.Fatal(err)
	}
	if asked := entries[holdfast.ToolRequested](w); len(asked) != 1 || string(asked[0].Input) != `{"file_path":"secret"}` {
		t.Errorf("requested %+v", asked)
	}
	if ran := entries[holdfast.ToolDecision](w); len(ran) != 1 || string(ran[0].Input) != `{"file_path":"safe"}` || ran[0].By != "callback" {
		t.Errorf("allowed %+v", ran)
	}
	if got := p.reqs[1].Messages[2].Blocks[0].Text; got != `Read{"file_path":"safe"}` {
		t.Errorf("it ran as %s", got)
	}
	w.check()
}

// afterTools answers like hooks after a tool: another output, and a text for the model.
type afterTools struct {
	mu    sync.Mutex
	texts []string
}

func (a *afterTools) Fire(_ context.Context, in hook.Input) hook.Result {
	if in.Event != hook.PostToolUse {
		return hook.Result{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.texts = append(a.texts, "context about "+in.ToolName)
	other := "replaced"
	return hook.Result{ToolOutput: &other}
}

func (a *afterTools) Waits(hook.Input) bool { return false }

func (a *afterTools) Said() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	texts := a.texts
	a.texts = nil
	return texts
}

// TestSDKH29_WhatHooksAnswerAfterATool: updatedMCPToolOutput replaces the answer of a
// server's tool, in the log and for the model, and of no other tool; additionalContext
// follows the answers.
func TestSDKH29_WhatHooksAnswerAfterATool(t *testing.T) {
	w := newWorld(t)
	l := w.loop()
	set, err := loop.NewToolset(fake{w: w, spec: tool.Spec{Name: "mcp__docs__find", Effect: tool.Read, Where: tool.InBox}}, fake{w: w, spec: tool.Spec{Name: "Read", Effect: tool.Read, Where: tool.InBox}})
	if err != nil {
		t.Fatal(err)
	}
	p := &request{Provider: l.Provider}
	l.Tools, l.Provider = set, p
	env := w.env()
	env.Hooks = &afterTools{}
	if _, err := l.Run(t.Context(), script(`[{"tools":[{"tool":"mcp__docs__find","input":{"q":1}},{"tool":"Read","input":{"file_path":"f"}}]},{"say":"x"}]`), env); err != nil {
		t.Fatal(err)
	}
	finished := entries[holdfast.ToolFinished](w)
	if len(finished) != 2 || finished[0].Content != "replaced" || finished[1].Content != `Read{"file_path":"f"}` {
		t.Errorf("the log has %+v", finished)
	}
	told, err := json.Marshal(p.reqs[1].Messages)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"replaced": true, "mcp__docs__find{": false, // the tool's own answer
		"context about mcp__docs__find": true, "context about Read": true,
	} {
		if found := strings.Contains(string(told), text); found != want {
			t.Errorf("the model is told %q: %t\n%s", text, found, told)
		}
	}
	w.check()
}
