package loop_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool/builtin"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/internal/loop"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// sandboxed decides by an engine, as a host with an untrusted session does.
type sandboxed struct{ *policy.Engine }

func (s sandboxed) Decide(ctx context.Context, req policy.Request) (policy.Decision, error) {
	req.Sandboxed = true
	return s.Engine.Decide(ctx, req)
}

// TestChildLayersReachTheBox: a command of a child agent with path lists of its own
// starts inside of them, or not at all. The mem driver enforces no layers, so here it
// does not start; the same command of its parent does.
func TestChildLayersReachTheBox(t *testing.T) {
	parent, err := policy.New(policy.Config{Rules: policy.RuleSet{Allow: []policy.Rule{{Tool: "Bash"}}}})
	if err != nil {
		t.Fatal(err)
	}
	child, err := parent.Child(check.Settings{AllowedWritePaths: []string{"/workspace/src"}})
	if err != nil {
		t.Fatal(err)
	}
	strict, err := parent.Child(check.Settings{DeniedPaths: []string{"/workspace/secret"}})
	if err != nil {
		t.Fatal(err)
	}
	drv := mem.New(mem.Config{})
	spec := sandbox.Spec{Box: "w-layers", Dir: t.TempDir()}
	if _, err := drv.Ensure(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	conn, err := drv.Connect(t.Context(), spec.Box)
	if err != nil {
		t.Fatal(err)
	}
	box, err := sandbox.Dial(t.Context(), spec.Box, conn, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = box.Close()
		if err := drv.Remove(context.WithoutCancel(t.Context()), spec.Box); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct {
		name    string
		engine  *policy.Engine
		outcome string
	}{
		{"parent", parent, "ran-here"},
		{"child", child, "cannot enforce path rules of a single agent"},
		{"strict", strict, "a box has no walls"},
	} {
		w := newWorld(t)
		w.box, w.lives[box] = box, 1
		set, err := loop.NewToolset(builtin.All()...)
		if err != nil {
			t.Fatal(err)
		}
		l, env := w.loop(), w.env()
		l.Tools, env.Policy = set, sandboxed{c.engine}
		env.NewCall = func() (holdfast.CallID, error) {
			id, err := holdfast.NewUUID(time.Now(), rand.Reader)
			return holdfast.CallID(id), err
		}
		if _, err := l.Run(t.Context(), script(`[{"tool":"Bash","input":{"command":"echo ran-here"}},{"say":"done"}]`), env); err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		for _, entries := range w.commits {
			for _, e := range entries {
				switch d := e.Data.(type) {
				case holdfast.ToolFinished:
					said.WriteString(d.Content)
				case holdfast.ToolDecision:
					said.WriteString(d.Reason)
				}
			}
		}
		if !strings.Contains(said.String(), c.outcome) || c.name != "parent" && strings.Contains(said.String(), "ran-here") {
			t.Errorf("%s: %q, want %q", c.name, said.String(), c.outcome)
		}
	}
}
