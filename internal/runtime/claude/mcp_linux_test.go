package claude_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/internal/runtime/claude"
	"github.com/holdfast-run/holdfast/internal/runtime/runtimetest"
)

// counter is a tool that runs in the server.
type counter struct {
	effect tool.Effect
	n      *atomic.Int64
}

func (c counter) Spec() tool.Spec {
	return tool.Spec{Name: "Count", Description: "counts", Schema: json.RawMessage(`{"type":"object","properties":{"by":{"type":"integer"}}}`), Effect: c.effect, Where: tool.InServer}
}

func (c counter) Run(_ context.Context, call tool.Call) (tool.Result, error) {
	return tool.Result{Content: fmt.Sprintf("counted %d with %s", c.n.Add(1), call.Input), Outcome: holdfast.ExitOK}, nil
}

// TestHZ12_HostTools: a tool of the server is called by the CLI as a use that was
// allowed and is in the log; killed around it, the server answers from the log, and
// runs again only what changes nothing.
func TestHZ12_HostTools(t *testing.T) {
	const steps = `<script>[{"tool":"mcp__holdfast__Count","input":{"by":2}},{"say":"done"}]</script>`
	for _, k := range []struct {
		name    string
		effect  tool.Effect
		die     string
		ran     int64
		unknown int
	}{
		{"Whole", tool.Mutate, "", 1, 0},
		{"BeforeMutating", tool.Mutate, "host-tool", 0, 1},
		{"BeforeReading", tool.Read, "host-tool", 1, 0},
		{"After", tool.Mutate, "host-tool-done", 1, 0},
	} {
		t.Run(k.name, func(t *testing.T) {
			var n atomic.Int64
			cfg := realCLI(t, func(c *claude.Config) { c.Host = []tool.Tool{counter{k.effect, &n}} })
			w := cfg.NewWorld(t)
			h := w.NewHost()
			if k.die != "" {
				h.Die = runtimetest.Point{Name: k.die}
			}
			id := w.Begin(steps)
			ran := h.Run(t.Context(), cfg.New(t), w.Turn(id, false))
			if ran.Died != (k.die != "") {
				t.Fatalf("died: %v, %v", ran.Died, ran.Err)
			}
			if ran.Died {
				h.Close()
				h = w.NewHost()
				ran = h.Run(t.Context(), cfg.New(t), w.Turn(id, true))
			}
			if ran.Err != nil || ran.Result.Text != "done" {
				t.Fatalf("%v %q", ran.Err, ran.Result.Text)
			}
			w.Complete(id, ran.Result)
			h.Close()
			w.CheckAnswered()
			if got := n.Load(); got != k.ran {
				t.Errorf("it ran %d times", got)
			}
			if got := len(runtimetest.Payloads[holdfast.ToolUnknown](w, holdfast.EventToolUnknown)); got != k.unknown {
				t.Errorf("%d unknown", got)
			}
			f := runtimetest.Payloads[holdfast.ToolFinished](w, holdfast.EventToolFinished)
			if k.unknown == 0 && (len(f) != 1 || f[0].Content != `counted 1 with {"by":2}`) {
				t.Errorf("finished %+v", f)
			}
			if ran := runOne(t, cfg, w, "and?", t.Context()); ran.Err != nil || !strings.Contains(ran.Result.Text, "1 tool results") {
				t.Errorf("afterwards: %v %q", ran.Err, ran.Result.Text)
			}
		})
	}
}
