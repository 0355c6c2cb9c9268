package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

func evaluate(t *testing.T, p policy.Policy, req policy.Request) policy.Decision {
	t.Helper()
	d, err := p.Evaluate(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The four built-in policies (SDK-Q2, SDK-Q3, SDK-Q4, SDK-Q5, SDK-Q13,
// SDK-Q14).
func TestBuiltinPolicies(t *testing.T) {
	for _, c := range []struct {
		p    policy.Policy
		tool string
		want policy.Verdict
	}{
		{policy.AllowTools("Read", "Bash"), "Bash", policy.Allowed},
		{policy.AllowTools("Read", "Bash"), "bash", policy.Denied},
		{policy.AllowTools(), "Read", policy.Denied},
		{policy.DenyTools("Bash"), "Bash", policy.Denied},
		{policy.DenyTools("Bash"), "bash", policy.Allowed},
		{policy.DenyTools(), "Bash", policy.Allowed},
		{policy.ReadOnly(), "Read", policy.Allowed},
		{policy.ReadOnly(), "Glob", policy.Allowed},
		{policy.ReadOnly(), "Grep", policy.Allowed},
		{policy.ReadOnly(), "WebSearch", policy.Allowed},
		{policy.ReadOnly(), "Write", policy.Denied},
		{policy.ReadOnly(), "Edit", policy.Denied},
		{policy.ReadOnly(), "Bash", policy.Denied},
		{policy.ReadOnly(), "mcp__x__read", policy.Denied},
	} {
		if d := evaluate(t, c.p, policy.Request{Tool: c.tool, ReadOnly: true}); d.Verdict != c.want {
			t.Errorf("%#v %s: %+v", c.p, c.tool, d)
		}
	}
	if policy.AllowTools("A", "B") != policy.AllowTools("B", "A", "A") || policy.DenyTools("A") == policy.DenyTools("B") || policy.ReadOnly() != policy.ReadOnly() {
		t.Error("built-in policies are not comparable values (SDK-Q13)")
	}
	if d := evaluate(t, policy.AllowTools("Read"), policy.Request{Tool: "Bash"}); !strings.Contains(d.Reason, "not in allowlist") {
		t.Errorf("%q", d.Reason)
	}
}

func fixed(d policy.Decision) policy.Policy {
	return policy.Func(func(context.Context, policy.Request) (policy.Decision, error) { return d, nil })
}

// Composition: order, the first denial, input threaded (SDK-Q6, SDK-Q7,
// SDK-Q8, SDK-Q9, SDK-Q10, SDK-Q11, SDK-Q12).
func TestAll(t *testing.T) {
	var seen []string
	record := func(name string, d policy.Decision) policy.Policy {
		return policy.Func(func(_ context.Context, r policy.Request) (policy.Decision, error) {
			seen = append(seen, name+string(r.Input))
			return d, nil
		})
	}
	d := evaluate(t, policy.All(record("a", policy.AllowInput([]byte("1"))), record("b", policy.Decision{}), record("c", policy.AllowInput([]byte("2"))), record("d", policy.Allow())), policy.Request{})
	if d.Verdict != policy.Allowed || string(d.Input) != "2" || strings.Join(seen, " ") != "a b1 c1 d2" {
		t.Errorf("%+v after %q (SDK-Q10)", d, seen)
	}
	seen = nil
	if d := evaluate(t, policy.All(record("a", policy.Deny("no")), record("b", policy.Allow())), policy.Request{}); d.Verdict != policy.Denied || d.Reason != "no" || len(seen) != 1 {
		t.Errorf("%+v after %q (SDK-Q7)", d, seen)
	}
	if d := evaluate(t, policy.All(fixed(policy.Ask("sure?")), fixed(policy.Allow())), policy.Request{}); d.Verdict != policy.Asked || d.Reason != "sure?" {
		t.Errorf("a wish to ask was lost: %+v", d)
	}
	none := fixed(policy.Decision{})
	for name, c := range map[string]struct {
		p    policy.Policy
		want policy.Verdict
	}{
		"all of nobody (Q9)": {policy.All(), policy.Allowed}, "all without opinion (Q9)": {policy.All(none, none), policy.Allowed}, "defer (Q11)": {policy.Defer(none), policy.NoOpinion}, "defer allows": {policy.Defer(none, fixed(policy.Allow())), policy.Allowed},
		"first (Q11)": {policy.First(none, fixed(policy.Allow()), fixed(policy.Deny(""))), policy.Allowed}, "first of nobody": {policy.First(), policy.NoOpinion},
		"any (Q11)": {policy.AnyOf(fixed(policy.Deny("")), fixed(policy.Allow())), policy.Allowed}, "any denies": {policy.AnyOf(none, fixed(policy.Deny(""))), policy.Denied}, "any asks": {policy.AnyOf(fixed(policy.Deny("")), fixed(policy.Ask(""))), policy.Asked},
		"an answer that is none": {policy.All(fixed(policy.Decision{Verdict: 9})), policy.Denied},
	} {
		if d := evaluate(t, c.p, policy.Request{}); d.Verdict != c.want {
			t.Errorf("%s: %+v", name, d)
		}
	}
	for _, tool := range []string{"Bash", "Read"} {
		p := policy.DenyTools("Bash")
		if a, b := evaluate(t, p, policy.Request{Tool: tool}), evaluate(t, policy.CanUseTool(p), policy.Request{Tool: tool}); a.Verdict != b.Verdict || a.Reason != b.Reason {
			t.Errorf("%+v and %+v (SDK-Q12)", a, b)
		}
	}
}

// The callback beats the mode both ways, and what goes wrong with it denies
// (SDK-P11, SDK-P12, SDK-P13, SDK-P14, SDK-P15, SDK-P16, SDK-P17, SDK-P19).
func TestCallback(t *testing.T) {
	with := func(p policy.Policy) *policy.Engine { return engine(t, policy.Config{Callback: p}) }
	if d := decide(t, with(fixed(policy.Allow())), bash(holdfast.ModePlan, "ls")); d.Verdict != policy.Allowed || d.By != "callback" {
		t.Errorf("allow under plan: %+v (SDK-P12)", d)
	}
	if d := decide(t, with(fixed(policy.Deny("because"))), bash(holdfast.ModeBypassPermissions, "ls")); d.Verdict != policy.Denied || d.Reason != "because" {
		t.Errorf("deny under bypass: %+v (SDK-P12, P14)", d)
	}
	if d := decide(t, with(fixed(policy.Decision{})), bash(holdfast.ModePlan, "ls")); d.Verdict != policy.Denied || d.By != "mode" {
		t.Errorf("no opinion: %+v (SDK-P11)", d)
	}
	if d := decide(t, with(fixed(policy.Ask("sure?"))), bash(holdfast.ModeBypassPermissions, "ls")); d.Verdict != policy.Denied {
		t.Errorf("ask with nobody to ask: %+v (SDK-P17)", d)
	}
	for name, p := range map[string]policy.Policy{
		"error": policy.Func(func(context.Context, policy.Request) (policy.Decision, error) {
			return policy.Allow(), errors.New("broken")
		}),
		"panic": policy.Func(func(context.Context, policy.Request) (policy.Decision, error) { panic("broken") }),
	} {
		if d := decide(t, with(p), bash(holdfast.ModeBypassPermissions, "ls")); d.Verdict != policy.Denied || !strings.Contains(d.Reason, "broken") {
			t.Errorf("%s: %+v (SDK-P19)", name, d)
		}
	}
	rewrite := with(fixed(policy.AllowInput(json.RawMessage(`{"command":"echo safe"}`))))
	if d := decide(t, rewrite, bash(holdfast.ModeDefault, "rm -rf /")); d.Verdict != policy.Allowed || string(d.Input) != `{"command":"echo safe"}` {
		t.Errorf("%+v (SDK-P15)", d)
	}
	into := policy.Config{Callback: fixed(policy.AllowInput(json.RawMessage(`{"command":"sudo ls"}`))), Rules: rules(t, nil, nil, []string{"Bash(sudo *)"})}
	if d := decide(t, engine(t, into), bash(holdfast.ModeDefault, "ls")); d.Verdict != policy.Denied || d.Rule != "Bash(sudo *)" {
		t.Errorf("rewritten into what is denied: %+v (SDK-P16)", d)
	}
	into = policy.Config{Callback: into.Callback, Sandbox: &check.Settings{DeniedCommands: []string{"sudo"}}}
	if d := decide(t, engine(t, into), bash(holdfast.ModeDefault, "ls")); d.Verdict != policy.Denied || d.By != "sandbox" {
		t.Errorf("rewritten into what the sandbox denies: %+v (SDK-P16)", d)
	}
}

// A callback that does not come back is a denial, whatever it waits for (SDK-P19).
func TestCallbackTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan struct{})
		e := engine(t, policy.Config{Patience: 5 * time.Second, Callback: policy.Func(func(context.Context, policy.Request) (policy.Decision, error) {
			<-gone
			return policy.Allow(), nil
		})})
		began := time.Now()
		d := decide(t, e, bash(holdfast.ModeBypassPermissions, "ls"))
		if d.Verdict != policy.Denied || !strings.Contains(d.Reason, "5s") || time.Since(began) != 5*time.Second {
			t.Errorf("%+v after %s", d, time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := e.Decide(ctx, bash(holdfast.ModeBypassPermissions, "ls")); !errors.Is(err, context.Canceled) {
			t.Errorf("a turn that was interrupted: %v", err)
		}
		close(gone)
	})
}

// The order of the stages, and that nothing lifts what was denied before (SDK-P7,
// SDK-P22).
func TestOrder(t *testing.T) {
	base := policy.Config{
		Rules:    rules(t, []string{"Bash(git *)", "Bash(sudo *)"}, []string{"Bash(git push *)"}, []string{"Bash(sudo *)"}),
		Sandbox:  &check.Settings{DeniedCommands: []string{"curl"}, AutoAllowBashIfSandboxed: true},
		Callback: policy.Func(func(_ context.Context, r policy.Request) (policy.Decision, error) { return policy.Decision{}, nil }),
	}
	boxed := func(cmd string) policy.Request {
		r := bash(holdfast.ModeDefault, cmd)
		r.Sandboxed = true
		return r
	}
	for _, c := range []struct {
		req  policy.Request
		want policy.Verdict
		by   string
		path string
	}{
		{boxed("sudo ls"), policy.Denied, "deny rule", "deny rules"},
		{boxed("curl x"), policy.Denied, "sandbox", "deny rules, sandbox"},
		{boxed("git push origin"), policy.Denied, "ask rule", "deny rules, ask rules, approver"},
		{boxed("ls"), policy.Allowed, "sandbox", "deny rules, ask rules, sandbox"},
		{bash(holdfast.ModeDefault, "git status"), policy.Allowed, "allow rule", "deny rules, ask rules, sandbox, callback, allow rules"},
		{bash(holdfast.ModeDontAsk, "git status"), policy.Allowed, "allow rule", "deny rules, ask rules, sandbox, callback, allow rules"},
		{bash(holdfast.ModeDefault, "ls"), policy.Denied, "mode", "deny rules, ask rules, sandbox, callback, allow rules, mode, approver"},
		{bash(holdfast.ModeDontAsk, "ls"), policy.Denied, "mode", "deny rules, ask rules, sandbox, callback, allow rules, mode"},
		{bash(holdfast.ModeBypassPermissions, "sudo ls"), policy.Denied, "deny rule", "deny rules"},
		{bash(holdfast.ModeBypassPermissions, "curl x"), policy.Denied, "sandbox", "deny rules, sandbox"},
	} {
		d, trace, err := engine(t, base).Explain(t.Context(), c.req)
		var stages []string
		for _, s := range trace {
			stages = append(stages, s.Stage)
		}
		if err != nil || d.Verdict != c.want || d.By != c.by || strings.Join(stages, ", ") != c.path {
			t.Errorf("%s %s: %+v, %v\n%s", c.req.Mode, c.req.Input, d, err, trace)
		}
	}
	never := base
	never.Callback = policy.Func(func(context.Context, policy.Request) (policy.Decision, error) {
		t.Error("the callback was asked about a command that the sandbox approves (SDK-W1)")
		return policy.Decision{}, nil
	})
	decide(t, engine(t, never), boxed("ls"))
}

// What hooks say counts before everything else when it is strict, and lifts no
// rule when it is mild (SDK-H30, SDK-P22).
func TestHooksBeforeRules(t *testing.T) {
	e := engine(t, policy.Config{
		Rules: rules(t, nil, []string{"Bash(git push *)"}, []string{"Bash(sudo *)"}),
		Approver: approver(func(context.Context, policy.Request, policy.Decision) (policy.Decision, error) {
			return policy.Allow(), nil
		}),
	})
	hooked := func(mode holdfast.Mode, cmd string, d policy.Decision) policy.Request {
		r := bash(mode, cmd)
		d.By = "hook"
		r.Hooks = d
		return r
	}
	for _, c := range []struct {
		req   policy.Request
		want  policy.Verdict
		by    string
		input string
	}{
		{hooked(holdfast.ModeBypassPermissions, "ls", policy.Deny("no")), policy.Denied, "hook", ""},
		{hooked(holdfast.ModeDefault, "ls", policy.Allow()), policy.Allowed, "hook", ""},
		{hooked(holdfast.ModeBypassPermissions, "sudo ls", policy.Allow()), policy.Denied, "deny rule", ""},
		{hooked(holdfast.ModeDontAsk, "git push origin", policy.Allow()), policy.Denied, "ask rule", ""},
		{hooked(holdfast.ModeBypassPermissions, "ls", policy.Ask("sure?")), policy.Allowed, "approver", ""},
		{hooked(holdfast.ModeBypassPermissions, "sudo ls", policy.Ask("sure?")), policy.Denied, "deny rule", ""},
		{hooked(holdfast.ModeBypassPermissions, "ls", policy.AllowInput(json.RawMessage(`{"command":"sudo ls"}`))), policy.Denied, "deny rule", `{"command":"sudo ls"}`},
		{hooked(holdfast.ModeBypassPermissions, "ls", policy.Decision{Input: json.RawMessage(`{"command":"id"}`)}), policy.Allowed, "mode", `{"command":"id"}`},
	} {
		if d := decide(t, e, c.req); d.Verdict != c.want || d.By != c.by || string(d.Input) != c.input {
			t.Errorf("%s %s after %+v: %+v", c.req.Mode, c.req.Input, c.req.Hooks, d)
		}
	}
}

// A layer adds what it forbids, and what it allows unless an agent can write it.
func TestLayers(t *testing.T) {
	base := engine(t, policy.Config{Rules: rules(t, []string{"Bash(git *)"}, nil, []string{"Bash(sudo *)"}), Sandbox: &check.Settings{DeniedCommands: []string{"curl"}}})
	layer := policy.Config{
		Rules:   rules(t, []string{"Bash(make *)"}, nil, []string{"Bash(git push *)"}),
		Granted: rules(t, []string{"Bash(npm *)"}, nil, nil).Allow,
		Sandbox: &check.Settings{DeniedCommands: []string{"wget"}, AutoAllowBashIfSandboxed: true},
	}
	loose, err := base.With(layer)
	if err != nil {
		t.Fatal(err)
	}
	layer.Tighten = true
	tight, err := base.With(layer)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cmd                string
		base, loose, tight policy.Verdict
	}{
		{"git status", policy.Allowed, policy.Allowed, policy.Allowed},
		{"git push origin", policy.Allowed, policy.Denied, policy.Denied},
		{"make all", policy.Denied, policy.Allowed, policy.Denied},
		{"npm ci", policy.Denied, policy.Allowed, policy.Denied},
		{"sudo ls", policy.Denied, policy.Denied, policy.Denied},
		{"curl x", policy.Denied, policy.Denied, policy.Denied},
		{"git clone; wget x", policy.Denied, policy.Denied, policy.Denied},
	} {
		for e, want := range map[*policy.Engine]policy.Verdict{base: c.base, loose: c.loose, tight: c.tight} {
			if d := decide(t, e, bash(holdfast.ModeDefault, c.cmd)); d.Verdict != want {
				t.Errorf("%s: %+v, not %s", c.cmd, d, want)
			}
		}
	}
	boxed := bash(holdfast.ModeDefault, "ls")
	boxed.Sandboxed = true
	if l, ti := decide(t, loose, boxed), decide(t, tight, boxed); l.Verdict != policy.Allowed || ti.Verdict != policy.Denied {
		t.Errorf("a layer that approves %+v, one that may only tighten %+v", l, ti)
	}
}

// A person's answer counts where one is asked.
type approver func(context.Context, policy.Request, policy.Decision) (policy.Decision, error)

// Approve implements policy.Approver.
func (f approver) Approve(ctx context.Context, req policy.Request, asked policy.Decision) (policy.Decision, error) {
	return f(ctx, req, asked)
}

// A person is asked once, and what is not a clear yes is a no (SDK-P17).
func TestApprover(t *testing.T) {
	for _, c := range []struct {
		answer policy.Decision
		want   policy.Verdict
	}{{policy.Allow(), policy.Allowed}, {policy.Deny("no"), policy.Denied}, {policy.Decision{}, policy.Denied}, {policy.Ask("hm"), policy.Denied}} {
		asked := 0
		e := engine(t, policy.Config{Rules: rules(t, nil, nil, []string{"Bash(sudo *)"}), Approver: approver(func(context.Context, policy.Request, policy.Decision) (policy.Decision, error) {
			asked++
			return c.answer, nil
		})})
		if d := decide(t, e, bash(holdfast.ModeDefault, "ls")); d.Verdict != c.want || asked != 1 {
			t.Errorf("%+v: %+v, asked %d times", c.answer, d, asked)
		}
		if decide(t, e, bash(holdfast.ModeDefault, "sudo ls")); asked != 1 {
			t.Error("somebody was asked about what a rule denies")
		}
	}
}

// TestRecheck: rules that came after a decision turn it into a denial if they deny the call, or the input that the
// decision put in its place; nobody is asked again.
func TestRecheck(t *testing.T) {
	e := engine(t, policy.Config{
		Rules: rules(t, []string{"Bash(ls)"}, []string{"Bash(curl *)"}, []string{"Bash(sudo *)"}),
		Approver: approver(func(context.Context, policy.Request, policy.Decision) (policy.Decision, error) {
			t.Error("a person was asked")
			return policy.Deny("no"), nil
		}),
		Callback: policy.Func(func(context.Context, policy.Request) (policy.Decision, error) {
			t.Error("the callback was asked")
			return policy.Deny("no"), nil
		}),
	})
	updates := []policy.Update{{}}
	allowed := policy.Decision{Verdict: policy.Allowed, By: "ada", Updates: updates}
	for _, c := range []struct {
		command, put, rule string
		d                  policy.Decision
	}{
		{command: "ls", d: allowed},
		{command: "rm x", d: allowed},
		{command: "curl x", d: allowed},
		{command: "sudo ls", d: allowed, rule: "Bash(sudo *)"},
		{command: "sudo ls", put: "ls", d: allowed},
		{command: "ls", put: "sudo ls", d: allowed, rule: "Bash(sudo *)"},
		{command: "sudo ls", d: policy.Deny("no")},
	} {
		if c.put != "" {
			c.d.Input = bash("", c.put).Input
		}
		got, err := e.Recheck(t.Context(), bash(holdfast.ModeDefault, c.command), c.d)
		want := c.d
		if c.rule != "" {
			want.Verdict, want.By, want.Rule, want.Reason = policy.Denied, got.By, c.rule, got.Reason
		}
		if !reflect.DeepEqual(got, want) || err != nil {
			t.Errorf("%q put %q: %+v, %v, want %+v", c.command, c.put, got, err, want)
		}
	}
}

// What the sandbox settings say of the file tools and of addresses (SDK-X3,
// SDK-B12).
func TestSandboxOfTools(t *testing.T) {
	e := engine(t, policy.Config{Sandbox: &check.Settings{
		AllowedReadPaths: []string{"/workspace"}, AllowedWritePaths: []string{"/workspace/out"}, DeniedPaths: []string{"/workspace/secret"},
		Network: &check.Network{AllowedDomains: []string{"example.com"}},
	}})
	for _, c := range []struct {
		tool, field, value string
		want               policy.Verdict
	}{
		{"Read", "file_path", "a", policy.Allowed},
		{"Read", "file_path", "/etc/passwd", policy.Denied},
		{"Read", "file_path", "secret/x", policy.Denied},
		{"Grep", "path", "secret", policy.Denied},
		{"Glob", "pattern", "*", policy.Allowed},
		{"LS", "path", "/", policy.Denied},
		{"Write", "file_path", "out/x", policy.Allowed},
		{"Write", "file_path", "x", policy.Denied},
		{"Edit", "file_path", "", policy.Denied},
		{"WebFetch", "url", "https://example.com/x", policy.Allowed},
		{"WebFetch", "url", "https://example.org/x", policy.Denied},
		{"WebFetch", "url", "::", policy.Denied},
		{"Bash", "command", "cat /etc/passwd", policy.Denied},
		{"Bash", "command", "ls", policy.Allowed},
		{"TodoWrite", "x", "y", policy.Allowed},
	} {
		b, _ := json.Marshal(map[string]string{c.field: c.value})
		d := decide(t, e, policy.Request{Mode: holdfast.ModeBypassPermissions, Tool: c.tool, Input: b, ReadOnly: !slices.Contains([]string{"Write", "Edit", "Bash"}, c.tool)})
		if d.Verdict != c.want {
			t.Errorf("%s %s: %+v", c.tool, c.value, d)
		}
	}
	if d := decide(t, e, policy.Request{Mode: holdfast.ModeBypassPermissions, Tool: "Bash", Input: json.RawMessage(`[`)}); d.Verdict != policy.Denied {
		t.Errorf("an input that is none: %+v", d)
	}
	if _, err := policy.New(policy.Config{Sandbox: &check.Settings{DeniedPaths: []string{"x"}}}); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("%v", err)
	}
}

func BenchmarkDecide(b *testing.B) {
	var deny []string
	for _, n := range strings.Fields("curl wget ssh scp nc sudo su doas mount umount") {
		deny = append(deny, "Bash("+n+" *)", "Read(/etc/"+n+"/**)")
	}
	e := engine(b, policy.Config{Rules: rules(b, nil, nil, deny), Sandbox: &check.Settings{DeniedPaths: []string{"/etc"}}})
	req := bash(holdfast.ModeBypassPermissions, "cd sub && go test ./... 2>&1 | tail -20")
	if d := decide(b, e, req); d.Verdict != policy.Allowed {
		b.Fatalf("%+v", d)
	}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = e.Decide(b.Context(), req)
	}
}
