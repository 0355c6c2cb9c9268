package native_test

import (
	"context"
	"encoding/json"
	"iter"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
	"github.com/holdfast-run/holdfast/agent/tool/builtin"
	"github.com/holdfast-run/holdfast/internal/loop"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/native"
	"github.com/holdfast-run/holdfast/internal/runtime/runtimetest"
)

func config() native.Config {
	return native.Config{
		Provider: scripted.New(), Tools: builtin.All(),
		Now: time.Now, Rand: func() float64 { return 0.5 }, Retry: loop.Retry{Base: time.Millisecond},
	}
}

func newRuntime(t *testing.T) runtime.Runtime {
	r, err := native.New(config())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRuntime(t *testing.T) { runtimetest.Run(t, runtimetest.Config{New: newRuntime}) }

func TestNewRefusesWhatIsMissing(t *testing.T) {
	for name, spoil := range map[string]func(*native.Config){
		"provider": func(c *native.Config) { c.Provider = nil },
		"clock":    func(c *native.Config) { c.Now = nil },
		"rand":     func(c *native.Config) { c.Rand = nil },
		"tools":    func(c *native.Config) { c.Tools = append(c.Tools, c.Tools[0]) },
	} {
		cfg := config()
		spoil(&cfg)
		if _, err := native.New(cfg); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("without %s: %v", name, err)
		}
	}
	if n := newRuntime(t).Name(); n != "native" {
		t.Error(n)
	}
}

// listener keeps the requests that reach a model.
type listener struct {
	model.Provider
	reqs []model.Request
}

func (l *listener) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Chunk, error] {
	l.reqs = append(l.reqs, req)
	return l.Provider.Stream(ctx, req)
}

func listening(t *testing.T) (runtime.Runtime, *listener) {
	cfg := config()
	l := &listener{Provider: cfg.Provider}
	cfg.Provider = l
	r, err := native.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r, l
}

// What the model was told while a turn ran is what the log tells it ever after:
// the beginning of every request stays the same.
func TestRequestsGrowOnlyAtTheirEnd(t *testing.T) {
	w := runtimetest.NewWorld(t)
	live, l := listening(t)
	do := func(r runtime.Runtime, text string) {
		t.Helper()
		h := w.NewHost()
		id := w.Begin(text)
		steered := false
		h.OnAt = func(point string) {
			if point == "finished-uncommitted" && !steered {
				steered = true
				w.Steer(id, text)
			}
		}
		ran := h.Run(t.Context(), r, w.Turn(id, false))
		if ran.Err != nil {
			t.Fatal(ran.Err)
		}
		w.End(id, holdfast.EventTurnCompleted, ran.Result.Final...)
		h.Close()
	}
	const turn = `<script>[{"think":"hm","say":"one","tools":[{"tool":"Bash","input":{ "command" : "echo '<a>' & true" }},{"tool":"Nope"},{"tool":"Read","input":{"file_path":"no"}}]},{"tool":"Read","input":[1]},{"say":"two"}]</script>`
	do(live, "hello")
	do(live, turn)
	fresh, after := listening(t)
	do(live, "end")
	do(fresh, "end")
	for i := range l.reqs[1:] {
		prefix(t, l.reqs[i], l.reqs[i+1])
	}
	prefix(t, l.reqs[len(l.reqs)-1], after.reqs[0])
}

// prefix checks that a later request begins with an earlier one.
func prefix(t *testing.T, early, late model.Request) {
	t.Helper()
	if early.System != late.System || cmp.Diff(early.Tools, late.Tools) != "" || len(late.Messages) < len(early.Messages) {
		t.Error("system prompt, tools or length changed")
		return
	}
	for i, m := range early.Messages {
		got := late.Messages[i]
		if i == len(early.Messages)-1 {
			got.Blocks = got.Blocks[:min(len(got.Blocks), len(m.Blocks))]
		}
		if d := cmp.Diff(m, got, cmp.Comparer(sameJSON)); d != "" {
			t.Errorf("message %d changed: %s", i, d)
		}
	}
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && cmp.Equal(x, y)
}

func TestManySessionsAtOnce(t *testing.T) {
	r := newRuntime(t)
	done := make(chan error)
	const sessions = 8
	for range sessions {
		w := runtimetest.NewWorld(t)
		go func() {
			h := w.NewHost()
			for range 3 {
				id := w.Begin(`<script>[{"tools":[{"tool":"Bash","input":{"command":"echo x >> a"}},{"tool":"Read","input":{"file_path":"a"}},{"tool":"Read","input":{"file_path":"a"}}]}]</script>`)
				ran := h.Run(t.Context(), r, w.Turn(id, false))
				if ran.Err != nil {
					done <- ran.Err
					return
				}
				w.End(id, holdfast.EventTurnCompleted, ran.Result.Final...)
			}
			done <- nil
		}()
	}
	for range sessions {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
