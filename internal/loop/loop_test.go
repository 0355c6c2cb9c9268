package loop_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/internal/loop"
	"github.com/holdfast-run/holdfast/policy"
)

func TestFinalAnswerIsReturnedNotRecorded(t *testing.T) {
	w := newWorld(t)
	res := w.run(`[{"say":"hi there","think":"hm","chunks":2,"usage":{"input_tokens":3,"output_tokens":4}}]`)
	if w.shape() != "" {
		t.Errorf("recorded %s", w.shape())
	}
	want := loop.Result{
		Final: []loop.Entry{
			{Type: holdfast.EventThinking, Data: holdfast.Thinking{Text: "hm"}},
			{Type: holdfast.EventMessageAssistant, Data: holdfast.AssistantMessage{
				Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "hi there"}}, Seen: 2, StopReason: "end_turn", Model: "scripted",
				Usage: holdfast.Usage{InputTokens: 3, OutputTokens: 4},
			}},
		},
		Seen: 2, Text: "hi there", StopReason: "end_turn", Usage: holdfast.Usage{InputTokens: 3, OutputTokens: 4}, Steps: 1,
	}
	if n := len(res.Messages); n != 2 || res.Messages[1].Role != model.Assistant || res.Messages[1].Blocks[1].Text != "hi there" {
		t.Errorf("the conversation is %+v", res.Messages)
	}
	res.Messages = nil
	if d := cmp.Diff(want, res); d != "" {
		t.Error(d)
	}
	deltas := []loop.Entry{
		{Type: holdfast.DeltaThinking, Data: holdfast.TextDelta{Text: "hm"}},
		{Type: holdfast.DeltaText, Data: holdfast.TextDelta{Text: "hi t"}},
		{Type: holdfast.DeltaText, Data: holdfast.TextDelta{Text: "here"}},
	}
	if d := cmp.Diff(deltas, w.deltas); d != "" {
		t.Error(d)
	}
}

// HZ-4: intent before the act, outcome before the next model call, release after
// the commit. And no commit more than that.
func TestHZ4_OneCallTwoCommits(t *testing.T) {
	w := newWorld(t)
	res := w.run(`[{"tool":"Bash","input":{"command":"true"}},{"say":"done"}]`)
	if got, want := w.shape(), "assistant requested allowed started | finished"; got != want {
		t.Errorf("commits %s, want %s", got, want)
	}
	want := []string{
		"record", "at intent", "at spawned", "run call-1", "at finished-uncommitted", "record", "at committed-unreleased", "release call-1",
	}
	if d := cmp.Diff(want, w.order); d != "" {
		t.Error(d)
	}
	if s := entries[holdfast.ToolStarted](w)[0]; s.Box != "s-box" || s.Boot != "boot1" {
		t.Errorf("intent %+v", s)
	}
	if res.Steps != 2 || res.Text != "done" {
		t.Errorf("%+v", res)
	}
	w.check()
}

func TestNeighbouringIntentsShareACommit(t *testing.T) {
	w := newWorld(t)
	w.run(`[{"tools":[{"tool":"Bash"},{"tool":"Write"},{"tool":"Read"},{"tool":"Bash"}]}]`)
	want := "assistant requested requested requested requested allowed allowed allowed allowed started | finished started | finished | finished started | finished"
	if got := w.shape(); got != want {
		t.Errorf("commits %s\nwant %s", got, want)
	}
	want = "run call-1,run call-2,Read {},run call-3"
	var acts []string
	for _, o := range w.order {
		if has(o, "run ") || has(o, "Read") {
			acts = append(acts, o)
		}
	}
	if got := strings.Join(acts, ","); got != want {
		t.Errorf("order %s, want %s", got, want)
	}
	w.check()
}

// request captures what the model was asked.
type request struct {
	model.Provider
	mu   sync.Mutex
	reqs []model.Request
}

func (r *request) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Chunk, error] {
	r.mu.Lock()
	r.reqs = append(r.reqs, req)
	r.mu.Unlock()
	return r.Provider.Stream(ctx, req)
}

func TestReadersRunAtOnceResultsInModelOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var mu sync.Mutex
		running, most := 0, 0
		slow := func(_ context.Context, c tool.Call) (tool.Result, error) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			var n int
			fmt.Sscanf(string(c.Input), `{"n":%d}`, &n)
			<-time.After(time.Duration(10-n) * time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return tool.Result{Content: fmt.Sprint("result ", n)}, nil
		}
		w.tools["Read"], w.tools["Note"] = slow, slow
		var uses []string
		for i := range 7 {
			uses = append(uses, fmt.Sprintf(`{"tool":%q,"input":{"n":%d}}`, []string{"Read", "Note"}[i%2], i))
		}
		l := w.loop()
		p := &request{Provider: l.Provider}
		l.Provider = p
		if _, err := l.Run(t.Context(), script(`[{"tools":[`+strings.Join(uses, ",")+`]}]`), w.env()); err != nil {
			t.Fatal(err)
		}
		if most != 4 {
			t.Errorf("%d ran at once", most)
		}
		last := p.reqs[1].Messages[2]
		for i, b := range last.Blocks {
			if b.Type != model.ToolResult || b.Text != fmt.Sprint("result ", i) {
				t.Errorf("result %d is %+v", i, b)
			}
		}
		if got := w.shape(); got != "assistant "+strings.Repeat("requested ", 7)+strings.Repeat("allowed ", 6)+"allowed | "+strings.Repeat("finished ", 6)+"finished" {
			t.Errorf("commits %s", got)
		}
		w.check()
	})
}

func TestWhatMayNotRunIsAnswered(t *testing.T) {
	w := newWorld(t)
	w.decide = func(r policy.Request) (policy.Decision, error) {
		switch r.Tool {
		case "Bash":
			return policy.Decision{By: "mode", Reason: "not in this mode"}, nil
		case "Grep":
			return policy.Allow(), errors.New("policy is broken")
		}
		if !r.ReadOnly || r.Session != "s1" || r.Mode != holdfast.ModeDefault {
			t.Errorf("asked %+v", r)
		}
		return policy.Decision{Verdict: policy.Allowed, By: "mode"}, nil
	}
	l := w.loop()
	p := &request{Provider: l.Provider}
	l.Provider = p
	_, err := l.Run(t.Context(), script(`[{"tools":[{"tool":"Nope"},{"tool":"Read","input":7},{"tool":"Bash"},{"tool":"Grep"},{"tool":"Read"}]},{"say":"x"}]`), w.env())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range p.reqs[1].Messages[2].Blocks {
		got = append(got, fmt.Sprintf("%v %s", b.IsError, b.Text))
	}
	want := []string{
		`true denied: there is no tool "Nope"`,
		`true denied: the input is not a JSON object: "7"`,
		`true denied: not in this mode`,
		`true denied: the call could not be decided: policy is broken`,
		`false Read{}`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	by := []string{}
	for _, d := range entries[holdfast.ToolDecision](w) {
		by = append(by, d.By)
	}
	if d := cmp.Diff([]string{"unknown tool", "input", "mode", "policy", "mode"}, by); d != "" {
		t.Error(d)
	}
	if in := entries[holdfast.ToolRequested](w)[1].Input; string(in) != `{"invalid_input":7}` {
		t.Errorf("recorded input %s", in)
	}
	if len(w.lives) != 1 {
		t.Errorf("%d boxes", len(w.lives))
	}
	w.check()
}

func TestDeniedCallsStartNoBox(t *testing.T) {
	w := newWorld(t)
	w.decide = func(policy.Request) (policy.Decision, error) { return policy.Decision{}, nil }
	w.run(`[{"tools":[{"tool":"Bash"},{"tool":"Read"}]},{"say":"x"}]`)
	if len(w.lives) != 0 {
		t.Error("a box was started")
	}
	w.check()
}

func TestModelFailures(t *testing.T) {
	for class, kind := range map[string]holdfast.Kind{
		"authentication": holdfast.KindUnauthenticated, "rate_limit": holdfast.KindBusy, "overloaded": holdfast.KindUnavailable,
		"invalid": holdfast.KindInvalid, "api": holdfast.KindUnavailable,
	} {
		w := newWorld(t)
		_, err := w.loop().Run(t.Context(), script(`[{"error":"`+class+`","times":99}]`), w.env())
		if !holdfast.IsKind(err, kind) || !has(err.Error(), class) {
			t.Errorf("%s: %v", class, err)
		}
		retries := len(entries[holdfast.Notice](w))
		if want := map[bool]int{true: 0, false: 4}[class == "invalid" || class == "authentication"]; retries != want {
			t.Errorf("%s: tried again %d times, want %d", class, retries, want)
		}
	}
	w := newWorld(t)
	if _, err := w.loop().Run(t.Context(), script(`[{"shout":1}]`), w.env()); !holdfast.IsKind(err, holdfast.KindInvalid) || !has(err.Error(), `"shout"`) {
		t.Error(err)
	}
}

// HZ-17: what was shown of an answer that broke off is voided before the next try.
func TestHZ17_RetryVoidsDeltas(t *testing.T) {
	w := newWorld(t)
	res := w.run(`[{"say":"abcdef","cut":true},{"error":"overloaded","say":"never"}]`)
	if got := w.shape(); got != "deltas.void model.retry" || res.Text != "abcdef" || res.Steps != 1 {
		t.Errorf("%s, %+v", got, res)
	}
	w = newWorld(t)
	w.run(`[{"error":"overloaded","times":2},{"say":"ok"}]`)
	if got := w.shape(); got != "model.retry | model.retry" {
		t.Errorf("nothing was shown, yet %s", got)
	}
}

func TestRetryWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := w.loop()
		l.Retry = loop.Retry{}
		began := time.Now()
		if _, err := l.Run(t.Context(), script(`[{"error":"overloaded","times":2},{"error":"rate_limit","retry_after":20},{"say":"x"}]`), w.env()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 21500*time.Millisecond {
			t.Errorf("waited %s", d)
		}
		// More than a minute is not waited for by who does not park.
		l.Retry.NoPark = true
		again := time.Now().Add(62*time.Second - 1).UTC().Format(time.RFC3339) // a full second, not before
		_, err := l.Run(t.Context(), script(`[{"error":"rate_limit","retry_after":61},{"say":"x"}]`), w.env())
		if !holdfast.IsKind(err, holdfast.KindBusy) || !strings.Contains(err.Error(), "the provider accepts calls again at "+again) {
			t.Error(err)
		}
		// Jitter, doubling and the cap.
		for n, want := range []time.Duration{500, 1000, 2000, 4000, 8000, 16000, 30000, 30000} {
			for _, rnd := range []float64{0, 0.5, 1} {
				d, ok := loop.Pause(loop.Retry{}, n, 0, rnd)
				if exact := time.Duration(float64(want*time.Millisecond) * (0.75 + rnd/2)); !ok || d != exact {
					t.Errorf("pause %d with %v is %s, want %s", n, rnd, d, exact)
				}
			}
		}
	})
}

// provider is a model in the test's hands.
type provider func(ctx context.Context, yield func(model.Chunk, error) bool)

func (p provider) Stream(ctx context.Context, _ model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) { p(ctx, yield) }
}

func TestBrokenProviders(t *testing.T) {
	for name, c := range map[string]struct {
		p    provider
		kind holdfast.Kind
	}{
		"panics": {func(context.Context, func(model.Chunk, error) bool) { panic("boom") }, holdfast.KindInternal},
		"ends":   {func(context.Context, func(model.Chunk, error) bool) {}, holdfast.KindUnavailable},
		"plain":  {func(_ context.Context, y func(model.Chunk, error) bool) { y(model.Chunk{}, errors.New("x")) }, holdfast.KindUnavailable},
		"own error": {func(_ context.Context, y func(model.Chunk, error) bool) {
			y(model.Chunk{}, holdfast.Errorf(holdfast.KindDenied, "x", "y"))
		}, holdfast.KindDenied},
	} {
		w := newWorld(t)
		l := w.loop()
		l.Provider = c.p
		if _, err := l.Run(t.Context(), conversation("hi"), w.env()); !holdfast.IsKind(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a model may say and no log may hold is repaired before it is recorded.
func TestSloppyAnswers(t *testing.T) {
	w := newWorld(t)
	l := w.loop()
	step := 0
	l.Provider = provider(func(_ context.Context, y func(model.Chunk, error) bool) {
		step++
		if step > 1 {
			y(model.Chunk{Type: model.ChunkDone, StopReason: "end_turn"}, nil)
			return
		}
		for _, b := range []model.Block{
			{Type: model.Text, Text: "a\xffb"},
			{Type: model.ToolUse, ID: "x", Name: "Note", Input: []byte(`{ "a" : 1 }`)},
			{Type: model.ToolUse, ID: "x", Name: "Note", Input: []byte(`{"a":`)},
			{Type: model.ToolUse, Name: "Note"},
			{Type: model.ToolResult, ID: "y", Text: "not the model's to say"},
			{Type: model.Text},
			{Type: model.Thinking, Text: "late", Signature: "sig"},
		} {
			y(model.Chunk{Type: model.ChunkBlock, Block: b}, nil)
		}
		y(model.Chunk{Type: model.ChunkDone, StopReason: "tool_use"}, nil)
	})
	res, err := l.Run(t.Context(), conversation("hi"), w.env())
	if err != nil {
		t.Fatal(err)
	}
	if res.Text != "" || len(res.Final) != 1 {
		t.Errorf("%+v", res)
	}
	var got []string
	for _, r := range entries[holdfast.ToolRequested](w) {
		got = append(got, r.ToolUseID+" "+string(r.Input))
	}
	if d := cmp.Diff([]string{`x {"a":1}`, `x-2 {"invalid_json":"{\"a\":"}`, `-3 {}`}, got); d != "" {
		t.Error(d)
	}
	if m := entries[holdfast.AssistantMessage](w)[0]; m.Parts[0].Text != "a\uFFFDb" || len(m.Parts) != 5 || m.Parts[4].Type != holdfast.PartThinking {
		t.Errorf("%+v", m)
	}
	if w.commits[0][0].Type != holdfast.EventThinking {
		t.Error(w.shape())
	}
	w.check()
}

func TestStepLimit(t *testing.T) {
	w := newWorld(t)
	l := w.loop()
	l.MaxSteps = 3
	c := script(`[{"tool":"Note"},{"tool":"Note"},{"tool":"Note"},{"say":"never"}]`)
	c.Steps = 1
	_, err := l.Run(t.Context(), c, w.env())
	if !holdfast.IsKind(err, holdfast.KindTooLarge) || holdfast.HintOf(err) == "" || len(entries[holdfast.AssistantMessage](w)) != 2 {
		t.Errorf("%v after %s", err, w.shape())
	}
	w.check()
}

func TestSteeringJoinsAtTheNextModelCall(t *testing.T) {
	w := newWorld(t)
	w.tools["Bash"] = func(context.Context, tool.Call) (tool.Result, error) {
		w.mu.Lock()
		w.joined = append(w.joined, loop.Joined{Seq: 9, Text: `<script>[{"say":"steered"}]</script>`})
		w.mu.Unlock()
		return tool.Result{Content: "x"}, nil
	}
	res := w.run(`[{"tool":"Bash"},{"say":"not steered"}]`)
	if res.Text != "steered" || res.Seen != 9 {
		t.Errorf("%+v", res)
	}
	if m := res.Final[0].Data.(holdfast.AssistantMessage); m.Seen != 9 {
		t.Errorf("seen %d", m.Seen)
	}
	if m := entries[holdfast.AssistantMessage](w)[0]; m.Seen != 2 {
		t.Errorf("the first answer has seen %d", m.Seen)
	}
	w.check()
}

func TestPanickingToolIsAnErrorResult(t *testing.T) {
	w := newWorld(t)
	boom := func(context.Context, tool.Call) (tool.Result, error) { panic("boom") }
	w.tools["Bash"], w.tools["Read"], w.tools["Note"] = boom, boom, boom
	res := w.run(`[{"tools":[{"tool":"Read"},{"tool":"Note"},{"tool":"Bash"}]},{"say":"went on"}]`)
	if res.Text != "went on" {
		t.Errorf("%+v", res)
	}
	for _, f := range entries[holdfast.ToolFinished](w) {
		if f.Outcome != holdfast.ExitError || !f.IsError || !has(f.Content, "panicked: boom") {
			t.Errorf("%+v", f)
		}
	}
	w.check()
}

func TestRecordErrorEndsTheTurn(t *testing.T) {
	full := holdfast.Errorf(holdfast.KindUnavailable, "store", "disk full")
	for n := range 3 {
		w := newWorld(t)
		w.recordErr = func(i int) error {
			if i == n {
				return full
			}
			if i > n {
				t.Error("recorded after an error")
			}
			return nil
		}
		_, err := w.loop().Run(t.Context(), script(`[{"tools":[{"tool":"Read"},{"tool":"Bash"}]},{"say":"x"}]`), w.env())
		if !errors.Is(err, full) {
			t.Errorf("%d: %v", n, err)
		}
		if n < 2 && len(w.ran) != 0 {
			t.Errorf("%d: a call without recorded intent ran", n)
		}
		for _, o := range w.order {
			if has(o, "release") {
				t.Errorf("%d: released before the outcome was recorded", n)
			}
		}
	}
}

func TestMissingPartsAreRefused(t *testing.T) {
	w := newWorld(t)
	if _, err := (&loop.Loop{}).Run(t.Context(), conversation("x"), w.env()); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Error(err)
	}
	for _, tools := range [][]tool.Tool{
		{fake{spec: tool.Spec{Name: "A"}}},
		{fake{spec: tool.Spec{Effect: tool.Read, Where: tool.InBox}}},
		{fake{spec: tool.Spec{Name: "A", Effect: tool.Read, Where: tool.InBox}}, fake{spec: tool.Spec{Name: "A", Effect: tool.Read, Where: tool.InServer}}},
	} {
		if _, err := loop.NewToolset(tools...); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Error(err)
		}
	}
	var names []string
	for _, o := range w.loop().Tools.Offered() {
		names = append(names, o.Name)
	}
	if !slices.Equal(names, []string{"Read", "Grep", "Bash", "Write", "Note", "Post"}) {
		t.Error(names)
	}
}

func TestHugeResultsAreCut(t *testing.T) {
	w := newWorld(t)
	w.tools["Note"] = func(context.Context, tool.Call) (tool.Result, error) {
		return tool.Result{Content: strings.Repeat("x", 2<<20) + "\xff"}, nil
	}
	w.run(`[{"tool":"Note"}]`)
	if f := entries[holdfast.ToolFinished](w)[0]; len(f.Content) > 1<<20+100 || !has(f.Content[1<<20:], "bytes more") {
		t.Errorf("%d bytes", len(f.Content))
	}
}

func TestAppendUserLeavesSharedBlocksAlone(t *testing.T) {
	blocks := make([]model.Block, 1, 8)
	mine := []model.Message{{Role: model.User, Blocks: blocks}}
	other := slices.Clone(mine)
	mine = loop.AppendUser(mine, model.Block{Type: model.Text, Text: "mine"})
	other = loop.AppendUser(other, model.Block{Type: model.Text, Text: "other"})
	if mine[0].Blocks[1].Text != "mine" || other[0].Blocks[1].Text != "other" {
		t.Errorf("%+v %+v", mine, other)
	}
}
