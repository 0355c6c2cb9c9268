package hook_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/policy"
)

func ptr[T any](v T) *T { return &v }

// TestSDKH18_Output: an object is an answer, other text a message, nothing is
// nothing. Also SDK-H21, SDK-H22, SDK-H24, SDK-H26, SDK-H28 and SDK-H29.
func TestSDKH18_Output(t *testing.T) {
	for _, c := range []struct {
		said string
		want hook.Output
		bad  bool
	}{
		{said: " \n"},
		{said: "all good\n", want: hook.Output{Message: "all good"}},
		{said: `[1,2]`, want: hook.Output{Message: `[1,2]`}},
		{said: `"text"`, want: hook.Output{Message: `"text"`}},
		{said: `{`, want: hook.Output{Message: `{`}, bad: true},
		{said: `{"decision":"deny"`, want: hook.Output{Message: `{"decision":"deny"`}, bad: true},
		{said: `{"decision":"deny"} and more`, want: hook.Output{Message: `{"decision":"deny"} and more`}, bad: true},
		{said: `{}`},
		{said: `{"unknown":1}`},
		{said: `{"message":"m"}`, want: hook.Output{Message: "m"}},
		{said: `{"block":true,"reason":"no"}`, want: hook.Output{Verdict: policy.Denied, Reason: "no"}},
		{said: `{"systemMessage":"s","additionalContext":"c"}`, want: hook.Output{Context: []string{"s", "c"}}},
		{said: `{"updatedInput":{"a":1}}`, want: hook.Output{Input: json.RawMessage(`{"a":1}`)}},
		{said: `{"updatedMCPToolOutput":"o"}`, want: hook.Output{ToolOutput: ptr("o")}},
		{said: `{"updatedMCPToolOutput":{"x":1}}`, want: hook.Output{ToolOutput: ptr(`{"x":1}`)}},
		{said: `{"notification":{"title":"t","body":"b","level":"loud"}}`, want: hook.Output{Notification: &holdfast.HookNotification{Title: "t", Body: "b", Level: "info"}}},
		{said: `{"notification":{"title":"t","level":"error"}}`, want: hook.Output{Notification: &holdfast.HookNotification{Title: "t", Level: "error"}}},
		{said: `{"permissionUpdate":{"tool":"Bash","behavior":"deny"}}`, want: hook.Output{Rules: []holdfast.RuleChange{{Scope: holdfast.ScopeSession, Behavior: "deny", Rule: "Bash"}}}},
		{said: `{"permissionDecision":"ask","permissionDecisionReason":"sure?"}`, want: hook.Output{Verdict: policy.Asked, Reason: "sure?"}},
		{
			said: `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"r","additionalContext":"c","updatedInput":{"b":2}}}`,
			want: hook.Output{Verdict: policy.Denied, Reason: "r", Context: []string{"c"}, Input: json.RawMessage(`{"b":2}`)},
		},
		{said: `{"continue":false,"stopReason":"enough"}`, want: hook.Output{Verdict: policy.Denied, Reason: "enough"}},
		// What is not what it should be is a message.
		{said: `{"block":"yes"}`, want: hook.Output{Message: `{"block":"yes"}`}, bad: true},
		{said: `{"message":1}`, want: hook.Output{Message: `{"message":1}`}, bad: true},
		{said: `{"decision":"maybe"}`, want: hook.Output{Message: `{"decision":"maybe"}`}, bad: true},
		{said: `{"permissionDecision":"DENY"}`, want: hook.Output{Message: `{"permissionDecision":"DENY"}`}, bad: true},
		{said: `{"updatedInput":[1]}`, want: hook.Output{Message: `{"updatedInput":[1]}`}, bad: true},
		{said: `{"permissionUpdate":{"tool":"","behavior":"deny"}}`, want: hook.Output{Message: `{"permissionUpdate":{"tool":"","behavior":"deny"}}`}, bad: true},
		{said: `{"permissionUpdate":{"tool":"Bash","behavior":"no"}}`, want: hook.Output{Message: `{"permissionUpdate":{"tool":"Bash","behavior":"no"}}`}, bad: true},
		{said: `{"hookSpecificOutput":7}`, want: hook.Output{Message: `{"hookSpecificOutput":7}`}, bad: true},
		// What a terminal would obey, and what is not text, is taken out.
		{said: "a\x1b[31m\x00b\xff", want: hook.Output{Message: "a[31mb�"}},
	} {
		got, well := hook.ParseOutput([]byte(c.said))
		if d := cmp.Diff(c.want, got); d != "" || well == c.bad {
			t.Errorf("%s: well %v\n%s", c.said, well, d)
		}
	}
}

// TestLongOutputIsBounded: what goes on of an answer has a limit, each part.
func TestLongOutputIsBounded(t *testing.T) {
	long := strings.Repeat("é", 2<<20)
	for _, field := range []string{"message", "reason", "systemMessage", "additionalContext", "updatedMCPToolOutput"} {
		out, _ := hook.ParseOutput([]byte(`{"` + field + `":"` + long + `"}`))
		for _, s := range append(out.Context, out.Message, out.Reason) {
			if len(s) > 65<<10 || !utf8.ValidString(s) {
				t.Errorf("%s: %d bytes go on", field, len(s))
			}
		}
		if out.ToolOutput != nil {
			t.Errorf("%s: %d bytes of output go on", field, len(*out.ToolOutput))
		}
	}
	if out, _ := hook.ParseOutput([]byte(`{"updatedInput":{"a":"` + long + `"}}`)); out.Input != nil {
		t.Errorf("an input of %d bytes goes on", len(out.Input))
	}
	if out, _ := hook.ParseOutput([]byte(`{"permissionUpdate":{"tool":"Bash(` + long + `)","behavior":"deny"}}`)); out.Rules != nil {
		t.Error("a rule without end goes on")
	}
}

// TestSDKH23_Contradictions: of what one answer says the strictest counts.
func TestSDKH23_Contradictions(t *testing.T) {
	for said, want := range map[string]policy.Verdict{
		`{"decision":"approve"}`:                             policy.Allowed,
		`{"decision":"block"}`:                               policy.Denied,
		`{"decision":"approve","block":true}`:                policy.Denied,
		`{"decision":"block","block":false}`:                 policy.Denied,
		`{"block":false}`:                                    policy.NoOpinion,
		`{"decision":"approve","permissionDecision":"deny"}`: policy.Denied,
		`{"decision":"approve","permissionDecision":"ask"}`:  policy.Asked,
		`{"decision":"block","permissionDecision":"allow"}`:  policy.Denied,
		`{"permissionDecision":"allow","hookSpecificOutput":{"permissionDecision":"ask"}}`:         policy.Asked,
		`{"permissionDecision":"deny","hookSpecificOutput":{"permissionDecision":"allow"}}`:        policy.Denied,
		`{"continue":false,"decision":"approve"}`:                                                  policy.Denied,
		`{"continue":true,"block":false,"decision":"approve","permissionDecision":"allow"}`:        policy.Allowed,
		`{"hookSpecificOutput":{"permissionDecision":"deny"},"decision":"approve","reason":"why"}`: policy.Denied,
	} {
		if got, _ := hook.ParseOutput([]byte(said)); got.Verdict != want {
			t.Errorf("%s: %s, want %s", said, got.Verdict, want)
		}
	}
}

// TestSDKH27_ReasonsGoOn: the reason is that of the strictest.
func TestSDKH27_ReasonsGoOn(t *testing.T) {
	for said, want := range map[string]string{
		`{"block":true,"reason":"r"}`: "r", `{"permissionDecision":"deny","permissionDecisionReason":"p"}`: "p",
		`{"decision":"approve","reason":"fine","permissionDecision":"deny","permissionDecisionReason":"p"}`: "p",
	} {
		if got, _ := hook.ParseOutput([]byte(said)); got.Reason != want {
			t.Errorf("%s: %q, want %q", said, got.Reason, want)
		}
	}
	r := one(t, hook.Definition{Command: `echo '{"block":true,"message":"only a message"}'`})
	if res := r.Run(t.Context(), bashCall, places(t)); res.Reason != "only a message" || res.Runs[0].Outcome != hook.OutcomeBlocked {
		t.Errorf("%+v", res)
	}
}

func FuzzHookOutput(f *testing.F) {
	for _, s := range []string{
		``, `{`, `{}`, `{"block":true}`, `{"decision":"block","block":false}`, `{"hookSpecificOutput":{"permissionDecision":"deny"}}`,
		`{"updatedInput":{"a":1}}`, `{"permissionUpdate":{"tool":"Bash(git *)","behavior":"deny"}}`,
		`{"permissionUpdate":{"tool":"0","behavior":"deny"}}`, "\x1b]0;x\x07", `{"block":1e999}`,
		`{"notification":{"title":"t"}}`, strings.Repeat(`{"a":`, 200),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		out, _ := hook.ParseOutput(b)
		texts := append([]string{out.Message, out.Reason}, out.Context...)
		if n := out.Notification; n != nil {
			texts = append(texts, n.Title, n.Body)
		}
		for _, s := range texts {
			if !utf8.ValidString(s) || strings.ContainsAny(s, "\x00\x1b\x07\x7f\r") {
				t.Errorf("%q is not clean", s)
			}
		}
		if len(out.Input) > 0 && (!json.Valid(out.Input) || out.Input[0] != '{') {
			t.Errorf("input %q is not an object", out.Input)
		}
		for _, r := range out.Rules {
			if err := policy.CheckRule(r.Rule); err != nil {
				t.Errorf("rule %q: %v", r.Rule, err)
			}
		}
		// The plainest wish to block is never lost.
		var o struct {
			Block    any `json:"block"`
			Decision any `json:"decision"`
		}
		if json.Unmarshal(b, &o) == nil && o.Block == true && out.Verdict != policy.Denied && out.Message == "" {
			t.Errorf("%q blocks, and comes to %s", b, out.Verdict)
		}
	})
}
