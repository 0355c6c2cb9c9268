package hook_test

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/policy"
)

var update = flag.Bool("update", false, "rewrite testdata")

func says(out hook.Output) hook.Func {
	return func(context.Context, hook.Input) (*hook.Output, error) { return &out, nil }
}

func register(t *testing.T, r *hook.Registry, d hook.Definition) hook.Handle {
	t.Helper()
	if d.Event == "" {
		d.Event = hook.PreToolUse
	}
	h, err := r.Register(d)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func one(t *testing.T, d hook.Definition) *hook.Registry {
	t.Helper()
	r := new(hook.Registry)
	register(t, r, d)
	return r
}

var bashCall = hook.Input{Event: hook.PreToolUse, ToolName: "Bash", ToolInput: json.RawMessage(`{"command":"ls"}`), ToolUseID: "t1"}

func places(t *testing.T) hook.Places {
	return hook.Places{Host: hook.Host{Environ: os.Environ(), Dir: t.TempDir()}, HTTP: hook.NewClient()}
}

// TestSDKH1_ManyPerEventInOrder: also SDK-H4 and SDK-H5.
func TestSDKH1_ManyPerEventInOrder(t *testing.T) {
	r := new(hook.Registry)
	if res := r.Run(t.Context(), bashCall, hook.Places{}); len(res.Runs) != 0 || res.Verdict != policy.NoOpinion {
		t.Errorf("without hooks: %+v (SDK-H5)", res)
	}
	var order []string
	for _, name := range []string{"a", "b", "c"} {
		register(t, r, hook.Definition{Name: name, Func: func(context.Context, hook.Input) (*hook.Output, error) {
			order = append(order, name)
			if name == "b" {
				return nil, nil
			}
			return &hook.Output{Message: name}, nil
		}})
	}
	register(t, r, hook.Definition{Event: hook.PostToolUse, Func: says(hook.Output{Message: "another event"})})
	res := r.Run(t.Context(), bashCall, hook.Places{})
	var said []string
	for _, run := range res.Runs {
		said = append(said, run.Hook+"="+run.Message)
	}
	if !slices.Equal(order, []string{"a", "b", "c"}) || !slices.Equal(said, []string{"a=a", "b=", "c=c"}) {
		t.Errorf("order %v, said %v (SDK-H4)", order, said)
	}
}

// TestSDKH3_ExactlyOneKind: a hook of two kinds, or of none, is refused at once.
func TestSDKH3_ExactlyOneKind(t *testing.T) {
	f := says(hook.Output{})
	for _, d := range []hook.Definition{
		{}, {Func: f, Command: "true"}, {Command: "true", URL: "http://h/"}, {Func: f, URL: "http://h/"},
	} {
		d.Event = hook.Stop
		if _, err := new(hook.Registry).Register(d); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%+v: %v", d, err)
		}
	}
}

// TestSDKH6_Matcher: also SDK-H7, SDK-H8 and SDK-H9.
func TestSDKH6_Matcher(t *testing.T) {
	for _, c := range []struct {
		matcher, tool string
		want          bool
	}{
		{"", "Bash", true},
		{"", "", true},
		{"*", "Bash", true},
		{"*", "", true},
		{"Bash", "Bash", true},
		{"Bash", "BashOutput", false},
		{"Bash", "bash", false},
		{"Bash", "", false},
		{"Write|Edit", "Edit", true},
		{"Write|Edit", "Read", false},
		{"mcp__.*", "mcp__db__query", true},
		{".*", "Bash", true},
		{".*", "", false},
		{"^Ba", "Bash", true},
	} {
		r := one(t, hook.Definition{Matcher: c.matcher, Func: says(hook.Output{})})
		got := len(r.Hooks(hook.Input{Event: hook.PreToolUse, ToolName: c.tool})) == 1
		if got != c.want {
			t.Errorf("matcher %q, tool %q: %v", c.matcher, c.tool, got)
		}
	}
	_, err := new(hook.Registry).Register(hook.Definition{Event: hook.PreToolUse, Matcher: "(", Command: "true"})
	if !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), "matcher") {
		t.Errorf("an invalid matcher: %v (SDK-H9)", err)
	}
}

func TestSDKH10_Timeouts(t *testing.T) {
	for d, ok := range map[time.Duration]bool{0: true, time.Millisecond: true, 5 * time.Second: true, time.Microsecond: false, -1: false, time.Hour: false} {
		_, err := new(hook.Registry).Register(hook.Definition{Event: hook.Stop, Command: "true", Timeout: d})
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "timeout") {
			t.Errorf("timeout %s: %v", d, err)
		}
	}
	c, err := hook.ParseConfig([]byte(`{"stop":[{"hooks":[{"type":"command","command":"sleep 10","timeout":1}]}]}`), hook.OnHost)
	if err != nil {
		t.Fatal(err)
	}
	r := new(hook.Registry)
	if err := r.Load(c, hook.OnHost); err != nil {
		t.Fatal(err)
	}
	if res := r.Run(t.Context(), hook.Input{Event: hook.Stop}, places(t)); res.Runs[0].Outcome != hook.OutcomeTimeout {
		t.Errorf("one millisecond: %+v", res.Runs)
	}
}

// TestSDKH11_FailuresStayTheirOwn: a hook that fails, panics or hangs leaves the
// others as they are; also SDK-H12.
func TestSDKH11_FailuresStayTheirOwn(t *testing.T) {
	release := make(chan struct{})
	left := make(chan struct{})
	r := new(hook.Registry)
	register(t, r, hook.Definition{Func: func(context.Context, hook.Input) (*hook.Output, error) {
		return nil, holdfast.Errorf(holdfast.KindInternal, "x", "broken")
	}})
	register(t, r, hook.Definition{Func: func(context.Context, hook.Input) (*hook.Output, error) { panic("boom") }})
	register(t, r, hook.Definition{Timeout: time.Millisecond, Func: func(context.Context, hook.Input) (*hook.Output, error) {
		<-release // deaf to its context
		close(left)
		return &hook.Output{Verdict: policy.Denied}, nil
	}})
	register(t, r, hook.Definition{Func: says(hook.Output{Message: "still here"})})
	res := r.Run(t.Context(), bashCall, hook.Places{})
	close(release)
	<-left
	var got []string
	for _, run := range res.Runs {
		got = append(got, run.Outcome)
	}
	if want := []string{"failed", "failed", "timeout", "ok"}; !slices.Equal(got, want) || res.Verdict != policy.NoOpinion || res.Runs[3].Message != "still here" {
		t.Errorf("outcomes %v, want %v; %+v", got, want, res)
	}
	if !strings.Contains(res.Runs[1].Reason, "boom") {
		t.Errorf("the panic is not told: %+v", res.Runs[1])
	}
}

// TestSDKH19_FailClosed: a failure denies where the hook says so.
func TestSDKH19_FailClosed(t *testing.T) {
	fail := func(context.Context, hook.Input) (*hook.Output, error) {
		return nil, holdfast.Errorf(holdfast.KindInternal, "x", "broken")
	}
	for _, closed := range []bool{false, true} {
		r := one(t, hook.Definition{Func: fail, FailClosed: closed})
		res := r.Run(t.Context(), bashCall, hook.Places{})
		if res.Blocked() != closed || res.Runs[0].Outcome != hook.OutcomeFailed {
			t.Errorf("failClosed %v: %+v", closed, res)
		}
	}
	for _, answer := range []string{`{"block": "maybe"}`, `{"block": true`} {
		r := one(t, hook.Definition{Command: "echo '" + answer + "'", FailClosed: true})
		if res := r.Run(t.Context(), bashCall, places(t)); !res.Blocked() {
			t.Errorf("nonsense of a hook that fails closed: %s: %+v", answer, res)
		}
	}
	r := one(t, hook.Definition{Command: "true", Where: hook.InBox, FailClosed: true})
	if res := r.Run(t.Context(), bashCall, places(t)); !res.Blocked() || res.Runs[0].Outcome != hook.OutcomeRefused {
		t.Errorf("no place to run: %+v", res)
	}
}

func TestSDKH15_InputGolden(t *testing.T) {
	in := hook.Input{
		Event: hook.PreToolUse, ToolName: "Bash", ToolInput: json.RawMessage(`{"command":"echo \"hi\"\n"}`), ToolOutput: "out", ToolUseID: "t1",
		ToolUseIDs: []string{"t1", "t2"}, Session: "00000000-0000-7000-8000-000000000000", Turn: "00000000-0000-7000-8000-000000000001",
		Cwd: "/workspace", Error: "e", TranscriptPath: "/t.jsonl", Mode: holdfast.ModeDefault, AgentID: "a1", AgentType: "coder", StopHookActive: true,
		LastAssistantMessage: "done", Trigger: "manual", CustomInstructions: "short", IsInterrupt: true, AgentTranscriptPath: "/a.jsonl",
		PermissionSuggestions: []policy.Update{{Type: policy.AddRules, Destination: policy.ToSession, Behavior: "allow", Rules: []string{"Bash(ls)"}}},
		Prompt:                "do it", Message: "m", FilePath: "/workspace/f", Key: "not told",
	}
	var seen []byte
	for _, in := range []hook.Input{in, {Event: hook.Stop}, {Event: hook.Stop, Session: "s", Mode: holdfast.ModePlan, TranscriptPath: "/t"}} {
		r := one(t, hook.Definition{Event: in.Event, Command: "cat >&2; exit 2"})
		res := r.Run(t.Context(), in, places(t))
		seen = append(seen, res.Reason+"\n"...)
	}
	const golden = "testdata/input.json"
	if *update {
		if err := os.WriteFile(golden, seen, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(seen)); d != "" {
		t.Error(d)
	}
}

// TestSDKH16_SessionIsTold: what is known of the session is in every input.
func TestSDKH16_SessionIsTold(t *testing.T) {
	in := hook.Input{Event: hook.Stop, Session: "the-session", Mode: holdfast.ModePlan, TranscriptPath: "/t.jsonl"}
	r := one(t, hook.Definition{Event: hook.Stop, Command: "cat >&2; exit 2"})
	got := r.Run(t.Context(), in, places(t)).Reason
	for _, want := range []string{`"sessionId":"the-session"`, `"permissionMode":"plan"`, `"transcriptPath":"/t.jsonl"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
}

// TestSDKH28_InputIsChained: each hook sees what those before it made of the input.
func TestSDKH28_InputIsChained(t *testing.T) {
	r := new(hook.Registry)
	var seen []string
	for _, next := range []string{`{"n":1}`, "", `{"n":2}`} {
		register(t, r, hook.Definition{Func: func(_ context.Context, in hook.Input) (*hook.Output, error) {
			seen = append(seen, string(in.ToolInput))
			return &hook.Output{Input: json.RawMessage(next)}, nil
		}})
	}
	register(t, r, hook.Definition{Func: says(hook.Output{Input: json.RawMessage(`[1]`)})})
	res := r.Run(t.Context(), bashCall, hook.Places{})
	if !slices.Equal(seen, []string{`{"command":"ls"}`, `{"n":1}`, `{"n":1}`}) || string(res.Input) != `{"n":2}` {
		t.Errorf("seen %v, result %s", seen, res.Input)
	}
	if res.Runs[3].Outcome != hook.OutcomeFailed {
		t.Errorf("an input that is no object: %+v", res.Runs[3])
	}
	if d := res.Decision(); string(d.Input) != `{"n":2}` || d.Verdict != policy.NoOpinion {
		t.Errorf("decision %+v", d)
	}
}

func TestSDKH30_StrictestWins(t *testing.T) {
	v := []policy.Verdict{policy.NoOpinion, policy.Allowed, policy.Asked, policy.Denied}
	for _, a := range v {
		for _, b := range v {
			r := new(hook.Registry)
			register(t, r, hook.Definition{Name: "a", Func: says(hook.Output{Verdict: a, Reason: "a"})})
			register(t, r, hook.Definition{Name: "b", Func: says(hook.Output{Verdict: b, Reason: "b"})})
			res := r.Run(t.Context(), bashCall, hook.Places{})
			by := "a"
			if b > a {
				by = "b"
			}
			if res.Verdict != max(a, b) || res.Verdict != policy.NoOpinion && (res.By != by || res.Reason != by) {
				t.Errorf("%s then %s: %+v", a, b, res)
			}
		}
	}
}

// TestSDKH25_DenyIsNotTakenBack: a rule that one hook made strict no later one
// makes milder.
func TestSDKH25_DenyIsNotTakenBack(t *testing.T) {
	r := new(hook.Registry)
	for _, behavior := range []string{"ask", "deny", "allow"} {
		register(t, r, hook.Definition{Func: says(hook.Output{Rules: []holdfast.RuleChange{{Scope: holdfast.ScopeSession, Behavior: behavior, Rule: "Bash"}}})})
	}
	res := r.Run(t.Context(), bashCall, hook.Places{})
	want := []policy.Update{{Type: policy.AddRules, Destination: policy.ToSession, Behavior: "deny", Rules: []string{"Bash"}}}
	if d := cmp.Diff(want, res.Decision().Updates); d != "" {
		t.Error(d)
	}
}

// TestHZ6_BoxesOnlyTighten: what a hook in a box allows counts for nothing.
func TestHZ6_BoxesOnlyTighten(t *testing.T) {
	for said, want := range map[string]policy.Verdict{
		`{"permissionDecision":"allow","permissionUpdate":{"tool":"Bash","behavior":"allow"}}`: policy.NoOpinion,
		`{"decision":"approve"}`: policy.NoOpinion, `{"permissionDecision":"ask"}`: policy.Asked, `{"block":true}`: policy.Denied,
	} {
		r := one(t, hook.Definition{Command: "x", Where: hook.InBox})
		res := r.Run(t.Context(), bashCall, hook.Places{Box: fixed{Stdout: []byte(said)}})
		if res.Verdict != want || len(res.Updates) != 0 {
			t.Errorf("%s: %+v", said, res)
		}
	}
}

// fixed answers every command alike.
type fixed hook.Exit

func (f fixed) Run(context.Context, hook.Command) (hook.Exit, error) { return hook.Exit(f), nil }

// TestHZ4_KnownRunsAreNotMadeAgain: a run that is known counts as it was, and its
// texts are not said twice.
func TestHZ4_KnownRunsAreNotMadeAgain(t *testing.T) {
	r := new(hook.Registry)
	ran := 0
	register(t, r, hook.Definition{Func: func(context.Context, hook.Input) (*hook.Output, error) {
		ran++
		return &hook.Output{Verdict: policy.Denied, Reason: "no", Context: []string{"text"}}, nil
	}})
	known := map[holdfast.CallID]holdfast.HookRan{}
	at := hook.Places{
		Call:  func(h *hook.Hook, in hook.Input) holdfast.CallID { return holdfast.CallID(in.ToolUseID) },
		Known: func(c holdfast.CallID) (holdfast.HookRan, bool) { k, ok := known[c]; return k, ok },
	}
	first := r.Run(t.Context(), bashCall, at)
	known["t1"] = first.Runs[0].HookRan
	second := r.Run(t.Context(), bashCall, at)
	if ran != 1 || !second.Blocked() || second.Reason != "no" || len(first.Context) != 1 || len(second.Context) != 0 {
		t.Errorf("ran %d times, first %+v, second %+v", ran, first, second)
	}
}

// TestSDKH32_RegistryChanges: also SDK-H31 for Load.
func TestSDKH32_RegistryChanges(t *testing.T) {
	r := new(hook.Registry)
	if r.HasHooks(hook.Stop) || !r.Empty() || (*hook.Registry)(nil).HasHooks(hook.Stop) {
		t.Error("an empty registry has hooks")
	}
	a := register(t, r, hook.Definition{Event: hook.Stop, Command: "a"})
	b := register(t, r, hook.Definition{Event: hook.Stop, Command: "b"})
	if a == b || !r.Unregister(a) || r.Unregister(a) || r.Unregister(hook.Handle{}) || !r.HasHooks(hook.Stop) || r.HasHooks(hook.Setup) {
		t.Error("unregister by handle")
	}
	if got := r.Hooks(hook.Input{Event: hook.Stop}); len(got) != 1 || got[0].Name() != "b" {
		t.Errorf("left: %v", got)
	}
	r.Clear()
	if !r.Empty() {
		t.Error("cleared registry is not empty")
	}
	if c := register(t, r, hook.Definition{Event: hook.Stop, Command: "c"}); c == a || c == b {
		t.Error("a handle is used again")
	}
}

// TestSDKH33_RegisterWhileRunning: who runs sees what was there when it began.
func TestSDKH33_RegisterWhileRunning(t *testing.T) {
	r := new(hook.Registry)
	register(t, r, hook.Definition{Func: func(context.Context, hook.Input) (*hook.Output, error) {
		_, err := r.Register(hook.Definition{Event: hook.PreToolUse, Func: says(hook.Output{})})
		return nil, err
	}})
	if res := r.Run(t.Context(), bashCall, hook.Places{}); len(res.Runs) != 1 {
		t.Errorf("%d runs", len(res.Runs))
	}
	r.Clear()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				h, _ := r.Register(hook.Definition{Event: hook.PreToolUse, Func: says(hook.Output{})})
				r.Run(t.Context(), bashCall, hook.Places{})
				r.HasHooks(hook.Stop)
				r.Unregister(h)
			}
		})
	}
	wg.Wait()
	if !r.Empty() {
		t.Error("hooks are left")
	}
}

// TestEventsAreNamed: 23 of the article, and those of our own.
func TestEventsAreNamed(t *testing.T) {
	if n := len(hook.Events()); n != 29 {
		t.Errorf("%d events", n)
	}
	for _, e := range hook.Events() {
		if got, err := hook.ParseEvent(string(e)); err != nil || got != e {
			t.Errorf("%s: %v", e, err)
		}
	}
	for _, s := range []string{"", "PreToolUse", "preToolUse ", "onError"} {
		if _, err := hook.ParseEvent(s); !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), holdfast.Quote(s)) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// TestACutOffPromptIsRefused: a hook that the end of the turn cut off has not seen the message, so the message is
// withheld. A hook that fails by itself lets it pass.
func TestACutOffPromptIsRefused(t *testing.T) {
	for event, want := range map[hook.Event]bool{hook.UserPromptSubmit: true, hook.PostToolUse: false} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var r hook.Registry
		if _, err := r.Register(hook.Definition{Event: event, Func: func(ctx context.Context, _ hook.Input) (*hook.Output, error) {
			cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		}}); err != nil {
			t.Fatal(err)
		}
		if res := r.Run(ctx, hook.Input{Event: event}, hook.Places{}); res.Blocked() != want {
			t.Errorf("%s, cut off: %+v", event, res)
		}
		if _, err := r.Register(hook.Definition{Event: hook.Setup, Func: func(context.Context, hook.Input) (*hook.Output, error) { return nil, context.Canceled }}); err != nil {
			t.Fatal(err)
		}
		if res := r.Run(t.Context(), hook.Input{Event: hook.Setup}, hook.Places{}); res.Blocked() {
			t.Errorf("a failed hook blocks: %+v", res)
		}
	}
}
