package scripted_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
)

func TestParseTakesEveryKey(t *testing.T) {
	steps, err := scripted.Parse([]byte(`[
		{"say": "hi", "think": "hm", "chunks": 3, "delay_ms": 10, "stall_ms": 20, "stop_reason": "max_tokens",
		 "usage": {"input_tokens": 5, "output_tokens": 6}},
		{"tool": "bash", "input": {"command": "true"}},
		{"tools": [{"tool": "Read"}, {"tool": "LS", "input": {"path": "."}}]},
		{"error": "rate_limit", "times": 2, "retry_after": 1.5},
		{"cut": true, "say": "half"},
		{"stall_ms": 5, "times": 3},
		{}]`))
	if err != nil {
		t.Fatal(err)
	}
	str := func(s string) *string { return &s }
	want := []scripted.Step{
		{
			Say: str("hi"), Think: "hm", Chunks: 3, Delay: 10 * time.Millisecond, Stall: 20 * time.Millisecond,
			StopReason: "max_tokens", Usage: &holdfast.Usage{InputTokens: 5, OutputTokens: 6}, Times: 1,
		},
		{Tools: []scripted.Use{{Tool: "bash", Input: []byte(`{"command": "true"}`)}}, Times: 1},
		{Tools: []scripted.Use{{Tool: "Read", Input: []byte(`{}`)}, {Tool: "LS", Input: []byte(`{"path": "."}`)}}, Times: 1},
		{Error: "rate_limit", Times: 2, RetryAfter: 1.5},
		{Cut: true, Say: str("half"), Times: 1},
		{Stall: 5 * time.Millisecond, Times: 3},
		{Times: 1},
	}
	if d := cmp.Diff(want, steps); d != "" {
		t.Fatal(d)
	}
	answers := []bool{true, true, true, false, true, false, true}
	for i := range steps {
		if steps[i].Answers() != answers[i] {
			t.Errorf("step %d: Answers() = %v", i, !answers[i])
		}
	}
}

// Every refusal is invalid, quotes what is wrong, and is made before any step runs.
func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ in, quoted string }{
		{`{"say": "x"}`, `{\"say\": \"x\"}`},
		{`null`, `"null"`},
		{`"x"`, `"\"x\""`},
		{`[1]`, `"1"`},
		{`[null]`, `"null"`},
		{`[{"shout": "x"}]`, `"shout"`},
		{`[{"Say": "x"}]`, `"Say"`},
		{`[{"say": 7}]`, `"7"`},
		{`[{"say": null}]`, `"null"`},
		{`[{"tool": ""}]`, `"\"\""`},
		{`[{"tool": 3}]`, `"3"`},
		{`[{"input": {}}]`, `"{}"`},
		{`[{"tool": "Bash", "tools": []}]`, `tool`},
		{`[{"tools": []}]`, `"[]"`},
		{`[{"tools": [{"name": "Bash"}]}]`, `name`},
		{`[{"tools": [{"input": {}}]}]`, `input`},
		{`[{"tools": [null]}]`, `null`},
		{`[{"think": []}]`, `"[]"`},
		{`[{"chunks": 0}]`, `"0"`},
		{`[{"chunks": 1.5}]`, `"1.5"`},
		{`[{"chunks": 10001}]`, `"10001"`},
		{`[{"delay_ms": -1}]`, `"-1"`},
		{`[{"delay_ms": 3600001}]`, `"3600001"`},
		{`[{"stall_ms": "1"}]`, `"\"1\""`},
		{`[{"usage": {"tokens": 1}}]`, `tokens`},
		{`[{"usage": {"input_tokens": -1}}]`, `-1`},
		{`[{"usage": 1}]`, `"1"`},
		{`[{"stop_reason": 1}]`, `"1"`},
		{`[{"error": "boom"}]`, `boom`},
		{`[{"error": 1}]`, `"1"`},
		{`[{"error": overloaded}]`, `overloaded`},
		{`[{"error": "api", "cut": true}]`, `"cut"`},
		{`[{"cut": 1}]`, `"1"`},
		{`[{"cut": null}]`, `"null"`},
		{`[{"times": 2}]`, `"2"`},
		{`[{"error": "api", "times": -1}]`, `"-1"`},
		{`[{"error": "api", "times": 1000001}]`, `"1000001"`},
		{`[{"retry_after": 2}]`, `"2"`},
		{`[{"error": "api", "retry_after": -2}]`, `"-2"`},
		{`[{"error": "api", "retry_after": null}]`, `"null"`},
		{`[` + strings.Repeat(`{},`, scripted.MaxSteps) + `{}]`, `10001`},
	} {
		_, err := scripted.Parse([]byte(c.in))
		if !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%.60s: %v, want invalid", c.in, err)
			continue
		}
		if !strings.Contains(err.Error(), c.quoted) {
			t.Errorf("%.60s: %q does not quote %s", c.in, err, c.quoted)
		}
	}
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		in      string
		found   bool
		steps   int
		invalid string
	}{
		{in: "plain"},
		{in: "what is a <script> tag?"},
		{in: "what are <script>"},
		{in: "</script> <script>"},
		{in: `<script>[{"say": "x"}]</script>`, found: true, steps: 1},
		{in: "do it:\n<script>\n [ ] \n</script> thanks", found: true},
		{in: `<script>[{"say": "</script>"}]</script>`, found: true, steps: 1},
		{in: `<script>[{"say": "x"}`, found: true, invalid: "no end"},
		{in: `<script>{"say": "x"}</script>`, found: true, invalid: "not an array"},
		{in: `<script>say x</script>`, found: true, invalid: `"say x"`},
		{in: `<script></script>`, found: true, invalid: "not JSON"},
		{in: `<script>[] trailing</script>`, found: true, invalid: `"trailing"`},
	} {
		steps, found, err := scripted.Find(c.in)
		if found != c.found || len(steps) != c.steps {
			t.Errorf("%q: found %v, %d steps", c.in, found, len(steps))
		}
		switch {
		case c.invalid == "" && err != nil:
			t.Errorf("%q: %v", c.in, err)
		case c.invalid != "" && (!holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), c.invalid)):
			t.Errorf("%q: %v, want invalid with %q", c.in, err, c.invalid)
		}
	}
}

// FuzzScript: no text makes the parser panic, an accepted script is within its
// bounds, and a refusal is invalid and short.
func FuzzScript(f *testing.F) {
	for _, s := range []string{
		"plain", `<script>[{"say": "x", "chunks": 2, "think": "y"}]</script>`,
		`<script>[{"tools": [{"tool": "Read", "input": {"path": "a"}}]}, {"tool": "Bash"}]</script>`,
		`<script>[{"error": "overloaded", "times": 2, "retry_after": 0.5}, {"cut": true}, {"stall_ms": 3}]</script>`,
		`<script>[{"usage": {"input_tokens": 1}, "stop_reason": "x", "delay_ms": 1}]</script>`,
		`<script>[{"say": 1}]</script>`, `<script>[`, "<script>\xff</script>", `<script>[{"say": "a"}] x</script>`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		steps, found, err := scripted.Find(text)
		if err != nil {
			if !found || steps != nil || !holdfast.IsKind(err, holdfast.KindInvalid) {
				t.Fatalf("%v, found %v, %d steps", err, found, len(steps))
			}
			if len(err.Error()) > 1000 {
				t.Fatalf("a refusal of %d bytes", len(err.Error()))
			}
			return
		}
		for _, s := range steps {
			if s.Chunks < 0 || s.Chunks > scripted.MaxChunks || s.Delay < 0 || s.Delay > scripted.MaxWait ||
				s.Stall < 0 || s.Stall > scripted.MaxWait || s.Times < 0 || len(s.Tools) > scripted.MaxTools {
				t.Fatalf("out of bounds: %+v", s)
			}
			for _, u := range s.Tools {
				if u.Tool == "" || len(u.Input) == 0 {
					t.Fatalf("a tool without name or input: %+v", s)
				}
			}
		}
	})
}

func TestParseLate(t *testing.T) {
	steps, err := scripted.Parse([]byte(`[{"error": "api", "late": true, "say": "half"}]`))
	if err != nil || !steps[0].Late {
		t.Fatal(steps, err)
	}
	for _, in := range []string{`[{"error": "api", "late": true}]`, `[{"late": true, "say": "x"}]`, `[{"error": "api", "say": "x", "late": 1}]`} {
		if _, err := scripted.Parse([]byte(in)); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v, want invalid", in, err)
		}
	}
}
