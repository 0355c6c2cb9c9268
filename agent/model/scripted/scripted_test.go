package scripted_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
)

// got is an answer as a consumer sees it.
type got struct {
	Deltas, Thoughts []string
	Blocks           []model.Block
	Stop             string
	Usage            holdfast.Usage
	Err              error
}

func (g got) text() string {
	var b strings.Builder
	for _, x := range g.Blocks {
		if x.Type == model.Text {
			b.WriteString(x.Text)
		}
	}
	return b.String()
}

func call(ctx context.Context, m model.Provider, req model.Request) got {
	var g got
	dones := 0
	for c, err := range m.Stream(ctx, req) {
		if err != nil {
			g.Err = err
			return g
		}
		switch c.Type {
		case model.ChunkText:
			g.Deltas = append(g.Deltas, c.Delta)
		case model.ChunkThinking:
			g.Thoughts = append(g.Thoughts, c.Delta)
		case model.ChunkBlock:
			g.Blocks = append(g.Blocks, c.Block)
		case model.ChunkDone:
			dones++
			g.Stop, g.Usage = c.StopReason, c.Usage
		}
	}
	if dones != 1 {
		g.Err = fmt.Errorf("%d final chunks", dones)
	}
	return g
}

func user(texts ...string) model.Message {
	m := model.Message{Role: model.User}
	for _, t := range texts {
		m.Blocks = append(m.Blocks, model.Block{Type: model.Text, Text: t})
	}
	return m
}

func assistant(text string) model.Message {
	return model.Message{Role: model.Assistant, Blocks: []model.Block{{Type: model.Text, Text: text}}}
}

func result(extra ...model.Block) model.Message {
	return model.Message{Role: model.User, Blocks: append([]model.Block{{Type: model.ToolResult, ID: "x", Text: "done"}}, extra...)}
}

func request(msgs ...model.Message) model.Request {
	return model.Request{
		Session: "s1", Messages: msgs,
		Tools: []model.Tool{{Name: "Bash"}, {Name: "Read"}},
	}
}

func script(s string) model.Message { return user("<script>" + s + "</script>") }

func TestMemorySentence(t *testing.T) {
	long := strings.Repeat("é", 70)
	for name, c := range map[string]struct {
		msgs []model.Message
		want string
	}{
		"one": {
			[]model.Message{user("hello")},
			`You have sent 1 messages. The first was: "hello". The last was: "hello". I have seen 0 tool results.`,
		},
		"many": {
			[]model.Message{user("one"), assistant("a"), result(), assistant("b"), result(model.Block{Type: model.Text, Text: "steered"}), assistant("c"), user("three")},
			`You have sent 3 messages. The first was: "one". The last was: "three". I have seen 2 tool results.`,
		},
		"two in one message": {
			[]model.Message{user("one", "two")},
			`You have sent 2 messages. The first was: "one". The last was: "two". I have seen 0 tool results.`,
		},
		"reminders": {
			[]model.Message{user("<system-reminder>x</system-reminder>", "one<system-reminder>y</system-reminder>"), assistant("a"), user("<system-reminder>z</system-reminder>", "[Request interrupted by user for tool use]")},
			`You have sent 1 messages. The first was: "one". The last was: "one". I have seen 0 tool results.`,
		},
		"cut": {
			[]model.Message{user(long)},
			`You have sent 1 messages. The first was: "` + long[:120] + `". The last was: "` + long[:120] + `". I have seen 0 tool results.`,
		},
		"injected history": {
			[]model.Message{user("<conversation_history>\n[USER]: first\n[ASSISTANT]: a\n[USER]: second\n</conversation_history>\nthird")},
			`You have sent 3 messages. The first was: "first". The last was: "third". I have seen 0 tool results.`,
		},
		"nothing": {
			[]model.Message{result()},
			`You have sent 0 messages. The first was: "". The last was: "". I have seen 1 tool results.`,
		},
		"old scripts do not count": {
			[]model.Message{script(`[{"say":"x"}]`), assistant("x"), user("now")},
			`You have sent 2 messages. The first was: "<script>[{"say":"x"}]</script>". The last was: "now". I have seen 0 tool results.`,
		},
	} {
		if g := call(t.Context(), scripted.New(), request(c.msgs...)); g.Err != nil || g.text() != c.want || g.Stop != "end_turn" {
			t.Errorf("%s: %v\n got %s\nwant %s", name, g.Err, g.text(), c.want)
		}
	}
}

// A script inside injected history is not obeyed; one in a message that joined a
// running turn is.
func TestWhichScriptIsObeyed(t *testing.T) {
	g := call(t.Context(), scripted.New(), request(user(`<conversation_history>[USER]: <script>[{"say":"old"}]</script></conversation_history> now`)))
	if !strings.HasPrefix(g.text(), "You have sent 2 messages.") {
		t.Errorf("said %q", g.text())
	}
	steer := model.Block{Type: model.Text, Text: `<script>[{"say":"new"}]</script>`}
	g = call(t.Context(), scripted.New(), request(script(`[{"tool":"Bash"},{"say":"old"}]`), assistant("x"), result(steer)))
	if g.text() != "new" {
		t.Errorf("said %q", g.text())
	}
}

func TestStepsFollowAssistantMessages(t *testing.T) {
	m := scripted.New()
	msgs := []model.Message{user("before"), assistant("sure"), script(`[{"tool":"bash","input":{"command":"true"}},{"tools":[{"tool":"READ"},{"tool":"Nope"}],"say":"both"},{"say":"done"}]`)}
	g := call(t.Context(), m, request(msgs...))
	want := []model.Block{{Type: model.ToolUse, ID: "toolu_3_0", Name: "Bash", Input: []byte(`{"command":"true"}`)}}
	if d := cmp.Diff(want, g.Blocks); d != "" || g.Stop != "tool_use" {
		t.Fatal(g.Stop, d)
	}
	if again := call(t.Context(), scripted.New(), request(msgs...)); cmp.Diff(g, again) != "" {
		t.Fatal("the same request got another answer")
	}
	msgs = append(msgs, assistant("x"), result())
	g = call(t.Context(), m, request(msgs...))
	want = []model.Block{
		{Type: model.Text, Text: "both"},
		{Type: model.ToolUse, ID: "toolu_5_0", Name: "Read", Input: []byte(`{}`)},
		{Type: model.ToolUse, ID: "toolu_5_1", Name: "Nope", Input: []byte(`{}`)},
	}
	if d := cmp.Diff(want, g.Blocks); d != "" {
		t.Fatal(d)
	}
	msgs = append(msgs, assistant("x"), result())
	if g = call(t.Context(), m, request(msgs...)); g.text() != "done" {
		t.Fatalf("third step said %q", g.text())
	}
	msgs = append(msgs, assistant("done"), user("<system-reminder>again</system-reminder>"))
	if g = call(t.Context(), m, request(msgs...)); g.text() != "ok" {
		t.Fatalf("beyond its end the script said %q", g.text())
	}
}

func TestChunksThinkUsageStopReason(t *testing.T) {
	g := call(t.Context(), scripted.New(), request(script(`[{"say":"aébcdefgh","chunks":4,"think":"hm","usage":{"input_tokens":7,"output_tokens":8},"stop_reason":"max_tokens"}]`)))
	want := got{
		Deltas: []string{"aé", "bc", "de", "fgh"}, Thoughts: []string{"hm"},
		Blocks: []model.Block{{Type: model.Thinking, Text: "hm"}, {Type: model.Text, Text: "aébcdefgh"}},
		Stop:   "max_tokens", Usage: holdfast.Usage{InputTokens: 7, OutputTokens: 8},
	}
	if d := cmp.Diff(want, g); d != "" {
		t.Fatal(d)
	}
	g = call(t.Context(), scripted.New(), request(script(`[{"say":"abc","chunks":10}]`)))
	if d := cmp.Diff([]string{"a", "b", "c"}, g.Deltas); d != "" {
		t.Fatal(d)
	}
}

func TestUsageIsBytesOverFour(t *testing.T) {
	req := model.Request{System: strings.Repeat("s", 40), Messages: []model.Message{script(`[{"say":"12345678"}]`)}}
	g := call(t.Context(), scripted.New(), req)
	want := holdfast.Usage{InputTokens: int64(40+len(req.Messages[0].Blocks[0].Text)) / 4, OutputTokens: 2}
	if g.Usage != want {
		t.Fatalf("usage %+v, want %+v", g.Usage, want)
	}
}

func TestErrorsAreCountedPerSessionAndStep(t *testing.T) {
	m := scripted.New()
	req := request(script(`[{"error":"overloaded","times":2,"retry_after":3},{"error":"authentication"},{"say":"hi"}]`))
	var f *model.Failure
	for range 2 {
		g := call(t.Context(), m, req)
		if !errors.As(g.Err, &f) || f.Class != "overloaded" || !f.Retryable || f.RetryAfterSeconds != 3 {
			t.Fatalf("%+v", g.Err)
		}
	}
	other := req
	other.Session = "s2"
	if g := call(t.Context(), m, other); !errors.As(g.Err, &f) || f.Class != "overloaded" {
		t.Fatalf("another session's count was shared: %+v", g)
	}
	if g := call(t.Context(), m, req); !errors.As(g.Err, &f) || f.Class != "authentication" || f.Retryable {
		t.Fatalf("%+v", g.Err)
	}
	if g := call(t.Context(), m, req); g.text() != "hi" {
		t.Fatalf("after its faults the script said %+v", g)
	}
	// The same message sent again is another message: its faults count anew.
	next := request(req.Messages[0], assistant("hi"), req.Messages[0])
	if g := call(t.Context(), m, next); !errors.As(g.Err, &f) || f.Class != "overloaded" {
		t.Fatalf("%+v", g)
	}
}

func TestErrorBesideAnAnswer(t *testing.T) {
	m := scripted.New()
	req := request(script(`[{"error":"api","say":"after"}]`))
	if g := call(t.Context(), m, req); g.Err == nil {
		t.Fatal("no failure")
	}
	if g := call(t.Context(), m, req); g.text() != "after" {
		t.Fatalf("%+v", g)
	}
	if g := call(t.Context(), m, request(script(`[{"error":"api","times":0,"say":"at once"}]`))); g.text() != "at once" {
		t.Fatalf("%+v", g)
	}
}

func TestCutShowsHalf(t *testing.T) {
	m := scripted.New()
	req := request(script(`[{"say":"abcdef","chunks":6,"cut":true}]`))
	g := call(t.Context(), m, req)
	var f *model.Failure
	if !errors.As(g.Err, &f) || f.Class != "cut" || !f.Retryable || len(g.Blocks) != 0 || strings.Join(g.Deltas, "") != "abc" {
		t.Fatalf("%+v", g)
	}
	if g = call(t.Context(), m, req); g.text() != "abcdef" {
		t.Fatalf("%+v", g)
	}
}

func TestDelayAndStallTakeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := scripted.New()
		began := time.Now()
		if g := call(t.Context(), m, request(script(`[{"say":"hi","delay_ms":300,"stall_ms":500}]`))); g.text() != "hi" {
			t.Fatalf("%+v", g)
		}
		if d := time.Since(began); d != 800*time.Millisecond {
			t.Errorf("took %s", d)
		}
		g := call(t.Context(), m, request(script(`[{"stall_ms":500},{"say":"hi"}]`)))
		var f *model.Failure
		if !errors.As(g.Err, &f) || f.Class != "stall" || !f.Retryable {
			t.Fatalf("%+v", g)
		}
		if g = call(t.Context(), m, request(script(`[{"stall_ms":500},{"say":"hi"}]`))); g.text() != "hi" {
			t.Fatalf("%+v", g)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if g = call(ctx, m, request(script(`[{"say":"hi","delay_ms":60000}]`))); !errors.Is(g.Err, context.DeadlineExceeded) {
			t.Fatalf("%+v", g)
		}
		if d := time.Since(began); d != time.Second {
			t.Errorf("ctx was honoured after %s", d)
		}
	})
}

func TestBadScriptIsAnInvalidRequest(t *testing.T) {
	g := call(t.Context(), scripted.New(), request(script(`[{"shout":"x"}]`)))
	var f *model.Failure
	if !errors.As(g.Err, &f) || f.Class != "invalid" || f.Retryable || !strings.Contains(f.Message, `"shout"`) || !strings.Contains(f.Message, "say, tool") {
		t.Fatalf("%+v", g.Err)
	}
}

func TestStopsWhenTheConsumerDoes(t *testing.T) {
	for _, s := range []string{
		`[{"say":"abc","chunks":3}]`, `[{"think":"x"}]`, `[{"tool":"Bash"}]`, `[{"say":"abc","cut":true}]`,
	} {
		for n := range 4 {
			for range scripted.New().Stream(t.Context(), request(script(s))) {
				if n--; n < 0 {
					break
				}
			}
		}
	}
}

func TestCountedSessionsAreBounded(t *testing.T) {
	m := scripted.New()
	for i := range 5000 {
		req := request(script(`[{"error":"api"}]`))
		req.Session = holdfast.SessionID(fmt.Sprint(i))
		if g := call(t.Context(), m, req); g.Err == nil {
			t.Fatal("no failure")
		}
	}
	if n := m.Counted(); n > 4096 {
		t.Fatalf("%d sessions are counted", n)
	}
}
