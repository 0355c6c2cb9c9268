package policy_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

func TestSDKP1_SixModes(t *testing.T) {
	for _, m := range strings.Fields("default plan auto acceptEdits dontAsk bypassPermissions") {
		if got, err := holdfast.Parse[holdfast.Mode](m); err != nil || string(got) != m {
			t.Errorf("%s: %q, %v", m, got, err)
		}
	}
	for _, m := range []string{"", "Default", "bypass", "accept_edits", "yolo", " plan"} {
		if _, err := holdfast.Parse[holdfast.Mode](m); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%q: %v", m, err)
		}
	}
}

func TestSDKP2_DefaultAsksOrDenies(t *testing.T) {
	asked := 0
	e := engine(t, policy.Config{Approver: approver(func(context.Context, policy.Request, policy.Decision) (policy.Decision, error) {
		asked++
		return policy.Allow(), nil
	})})
	if d := decide(t, e, bash(holdfast.ModeDefault, "ls")); d.Verdict != policy.Allowed || asked != 1 {
		t.Errorf("%+v, asked %d times", d, asked)
	}
	if d := decide(t, e, file(holdfast.ModeDefault, "Read", "x")); d.Verdict != policy.Allowed || asked != 1 {
		t.Errorf("a reading tool: %+v, asked %d times", d, asked)
	}
	if d := decide(t, new(policy.Engine), bash(holdfast.ModeDefault, "ls")); d.Verdict != policy.Denied || d.Reason == "" {
		t.Errorf("with nobody to ask: %+v", d)
	}
}

func TestSDKP3_PlanRunsReadersAndAsksForTheRest(t *testing.T) {
	asked := 0
	e := engine(t, policy.Config{Approver: approver(func(context.Context, policy.Request, policy.Decision) (policy.Decision, error) {
		asked++
		return policy.Deny("no"), nil
	})})
	for _, req := range []policy.Request{file(holdfast.ModePlan, "Read", "x"), file(holdfast.ModePlan, "Grep", "x")} {
		if d := decide(t, e, req); d.Verdict != policy.Allowed || asked != 0 {
			t.Errorf("%s: %+v", req.Tool, d)
		}
	}
	for i, req := range []policy.Request{file(holdfast.ModePlan, "Write", "x"), bash(holdfast.ModePlan, "ls")} {
		if d := decide(t, e, req); d.Verdict != policy.Denied || asked != i+1 {
			t.Errorf("%s: %+v", req.Tool, d)
		}
	}
}

func TestSDKP6_DontAskNeverAsks(t *testing.T) {
	e := engine(t, policy.Config{
		Rules: rules(t, []string{"Bash(git *)"}, []string{"Bash(git push *)"}, nil),
		Approver: approver(func(context.Context, policy.Request, policy.Decision) (policy.Decision, error) {
			t.Error("somebody was asked")
			return policy.Allow(), nil
		}),
	})
	for cmd, want := range map[string]policy.Verdict{"git status": policy.Allowed, "git push o": policy.Denied, "ls": policy.Denied} {
		if d := decide(t, e, bash(holdfast.ModeDontAsk, cmd)); d.Verdict != want {
			t.Errorf("%s: %+v", cmd, d)
		}
	}
	if d := decide(t, e, file(holdfast.ModeDontAsk, "Read", "x")); d.Verdict != policy.Allowed {
		t.Errorf("a reading tool: %+v", d)
	}
}

func TestSDKP14_DenialsNameTheTool(t *testing.T) {
	for _, mode := range []holdfast.Mode{holdfast.ModeDefault, holdfast.ModePlan, holdfast.ModeDontAsk} {
		if d := decide(t, new(policy.Engine), file(mode, "Write", "x")); d.Verdict != policy.Denied || !strings.Contains(d.Reason, "Write") {
			t.Errorf("%s: %+v", mode, d)
		}
	}
}

// callTool is a policy of its own: it looks at everything a request has (SDK-Q1,
// SDK-P10).
type callTool struct{ seen []policy.Request }

// Evaluate implements policy.Policy.
func (c *callTool) Evaluate(_ context.Context, req policy.Request) (policy.Decision, error) {
	c.seen = append(c.seen, req)
	if req.Tool == "Bash" && strings.Contains(string(req.Input), "deploy") {
		return policy.Deny("not on a Friday"), nil
	}
	return policy.Decision{}, nil
}

func TestSDKQ1_APolicyOfOnesOwn(t *testing.T) {
	// SDK-P10 and SDK-P11: asked with tool, input and context; nothing said leaves it to the mode.
	var mine callTool
	e := engine(t, policy.Config{Callback: policy.CanUseTool(&mine)})
	req := bash(holdfast.ModeBypassPermissions, "deploy")
	req.Session, req.CallID, req.Agent, req.Cwd = "s", "c", "child", "/workspace/sub"
	if d := decide(t, e, req); d.Verdict != policy.Denied || d.Reason != "not on a Friday" {
		t.Errorf("%+v", d)
	}
	if d := decide(t, e, bash(holdfast.ModeBypassPermissions, "ls")); d.Verdict != policy.Allowed || d.By != "mode" {
		t.Errorf("%+v", d)
	}
	if got := mine.seen[0]; got.Tool != "Bash" || got.Session != "s" || got.CallID != "c" || got.Agent != "child" || got.Cwd != "/workspace/sub" || string(got.Input) != string(req.Input) {
		t.Errorf("it was told %+v", got)
	}
}

// What servers of tools say of themselves makes nothing milder (SDK-Q14).
func TestSDKQ14_ServerToolsAreNoReaders(t *testing.T) {
	hinted := policy.Request{Tool: "mcp__x__list", ReadOnly: true, Input: json.RawMessage("{}")}
	for _, mode := range []holdfast.Mode{holdfast.ModeDefault, holdfast.ModePlan, holdfast.ModeDontAsk, holdfast.ModeAcceptEdits} {
		hinted.Mode = mode
		if d := decide(t, new(policy.Engine), hinted); d.Verdict != policy.Denied {
			t.Errorf("%s: %+v", mode, d)
		}
	}
	if d := evaluate(t, policy.ReadOnly(), hinted); d.Verdict != policy.Denied {
		t.Errorf("%+v", d)
	}
}

// sandboxed asks an engine with these settings about a command in a box.
func sandboxedCommand(t *testing.T, s *check.Settings, mode holdfast.Mode, cmd string, change func(*policy.Config, *policy.Request)) policy.Decision {
	t.Helper()
	cfg, req := policy.Config{Sandbox: s}, bash(mode, cmd)
	req.Sandboxed = true
	if change != nil {
		change(&cfg, &req)
	}
	return decide(t, engine(t, cfg), req)
}

// autoAllowBashIfSandboxed (SDK-B7), row by row.
func TestSDKW1ToW6_BashApprovedByTheSandbox(t *testing.T) {
	auto := &check.Settings{AutoAllowBashIfSandboxed: true, DeniedCommands: []string{"rm"}}
	never := func(cfg *policy.Config, _ *policy.Request) {
		cfg.Callback = policy.Func(func(context.Context, policy.Request) (policy.Decision, error) {
			t.Error("SDK-W1: the callback was asked")
			return policy.Deny("callback"), nil
		})
	}
	// SDK-W1, SDK-W4: approved in every mode, with nobody asked.
	for _, mode := range []holdfast.Mode{holdfast.ModeDefault, holdfast.ModePlan, holdfast.ModeAcceptEdits, holdfast.ModeDontAsk, holdfast.ModeAuto} {
		if d := sandboxedCommand(t, auto, mode, "ls", never); d.Verdict != policy.Allowed || d.By != "sandbox" {
			t.Errorf("%s: %+v", mode, d)
		}
	}
	// SDK-W2: the filter still holds.
	if d := sandboxedCommand(t, auto, holdfast.ModeDefault, "ls; rm x", nil); d.Verdict != policy.Denied {
		t.Errorf("%+v", d)
	}
	// SDK-W3: other tools, and Bash without the setting, are left to the mode.
	if d := sandboxedCommand(t, auto, holdfast.ModeDefault, "", func(_ *policy.Config, r *policy.Request) {
		*r = file(holdfast.ModeDefault, "Write", "x")
		r.Sandboxed = true
	}); d.Verdict != policy.Denied || d.By != "mode" {
		t.Errorf("%+v", d)
	}
	if d := sandboxedCommand(t, &check.Settings{}, holdfast.ModeDefault, "ls", nil); d.Verdict != policy.Denied || d.By != "mode" {
		t.Errorf("%+v", d)
	}
	// SDK-W5: deny rules, ask rules and hooks come first.
	for name, change := range map[string]func(*policy.Config, *policy.Request){
		"deny rule": func(c *policy.Config, _ *policy.Request) { c.Rules = rules(t, nil, nil, []string{"Bash(ls *)"}) },
		"ask rule":  func(c *policy.Config, _ *policy.Request) { c.Rules = rules(t, nil, []string{"Bash(ls *)"}, nil) },
		"hook":      func(_ *policy.Config, r *policy.Request) { r.Hooks = policy.Deny("no") },
	} {
		if d := sandboxedCommand(t, auto, holdfast.ModeBypassPermissions, "ls x", change); d.Verdict != policy.Denied || d.By != name {
			t.Errorf("%s: %+v", name, d)
		}
	}
	// SDK-W6: only where a sandbox of the system is in force.
	if d := sandboxedCommand(t, auto, holdfast.ModeDefault, "ls", func(_ *policy.Config, r *policy.Request) { r.Sandboxed = false }); d.Verdict != policy.Denied || d.By != "mode" {
		t.Errorf("%+v", d)
	}
}

func TestSDKB8_TheModelAsksForACommandOutside(t *testing.T) {
	out := func(value string) func(*policy.Config, *policy.Request) {
		return func(_ *policy.Config, r *policy.Request) {
			r.Input = json.RawMessage(`{"command":"ls","dangerouslyDisableSandbox":` + value + `}`)
		}
	}
	open := &check.Settings{AllowUnsandboxedCommands: true, AutoAllowBashIfSandboxed: true}
	for _, c := range []struct {
		s     *check.Settings
		mode  holdfast.Mode
		value string
		want  policy.Verdict
		by    string
	}{
		{nil, holdfast.ModeBypassPermissions, "true", policy.Denied, "sandbox"},
		{&check.Settings{AutoAllowBashIfSandboxed: true}, holdfast.ModeBypassPermissions, "true", policy.Denied, "sandbox"},
		{&check.Settings{}, holdfast.ModeBypassPermissions, `"yes"`, policy.Denied, "sandbox"},
		{&check.Settings{}, holdfast.ModeBypassPermissions, "false", policy.Allowed, "mode"},
		{open, holdfast.ModeBypassPermissions, "true", policy.Allowed, "mode"},
		{open, holdfast.ModeDefault, "true", policy.Denied, "mode"},
		{open, holdfast.ModeDefault, "false", policy.Allowed, "sandbox"},
	} {
		if d := sandboxedCommand(t, c.s, c.mode, "ls", out(c.value)); d.Verdict != c.want || d.By != c.by {
			t.Errorf("%+v %s %s: %+v", c.s, c.mode, c.value, d)
		}
	}
	e := engine(t, policy.Config{Sandbox: open})
	inner, err := e.With(policy.Config{Sandbox: &check.Settings{}})
	if err != nil {
		t.Fatal(err)
	}
	req := bash(holdfast.ModeBypassPermissions, "ls")
	out("true")(nil, &req)
	if d := decide(t, inner, req); d.Verdict != policy.Denied {
		t.Errorf("one layer forbids it: %+v", d)
	}
}

func TestSDKB10_IgnoredViolationsAreStillDenied(t *testing.T) {
	s := &check.Settings{
		DeniedCommands: []string{"curl", "rm"}, DeniedPaths: []string{"/etc"}, Network: &check.Network{},
		IgnoreViolations: map[string][]string{"command": {"cur*"}, "file": {"/etc/*"}, "network": {"*"}},
	}
	e := engine(t, policy.Config{Sandbox: s})
	for _, c := range []struct {
		tool, field, value string
		quiet              bool
	}{
		{"Bash", "command", "curl x", true},
		{"Bash", "command", "rm x", false},
		{"Bash", "command", "cat /etc/passwd", true},
		{"Read", "file_path", "/etc/passwd", true},
		{"Read", "file_path", "/etc/a/b", false},
		{"WebFetch", "url", "https://x.org", true},
	} {
		b, _ := json.Marshal(map[string]string{c.field: c.value})
		d := decide(t, e, policy.Request{Mode: holdfast.ModeBypassPermissions, Tool: c.tool, Input: b, ReadOnly: c.tool == "Read"})
		if d.Verdict != policy.Denied || d.Reason == "" || d.Quiet != c.quiet {
			t.Errorf("%s %s: %+v", c.tool, c.value, d)
		}
	}
}

func TestSDKB13_DomainsOfTheServerAlone(t *testing.T) {
	managed := engine(t, policy.Config{Sandbox: &check.Settings{Network: &check.Network{AllowManagedDomainsOnly: true, AllowedDomains: []string{"a.org", "b.org"}}}})
	e, err := managed.With(policy.Config{Sandbox: &check.Settings{Network: &check.Network{AllowedDomains: []string{"b.org", "evil.org"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]policy.Verdict{"b.org": policy.Allowed, "a.org": policy.Denied, "evil.org": policy.Denied} {
		b, _ := json.Marshal(map[string]string{"url": "https://" + host})
		if d := decide(t, e, policy.Request{Mode: holdfast.ModeBypassPermissions, Tool: "WebFetch", Input: b}); d.Verdict != want {
			t.Errorf("%s: %+v", host, d)
		}
	}
}

// What nothing carries out is refused, or said (SDK-B6, SDK-B14 to SDK-B17).
func TestSDKB16_SettingsThatNothingCarriesOut(t *testing.T) {
	port := 8080
	for field, n := range map[string]*check.Network{"network.httpProxyPort": {HTTPProxyPort: &port}, "network.socksProxyPort": {SOCKSProxyPort: &port}} {
		for _, tighten := range []bool{false, true} {
			_, err := policy.New(policy.Config{Sandbox: &check.Settings{Network: n}, Tighten: tighten})
			if !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), field) || holdfast.HintOf(err) == "" {
				t.Errorf("%s: %v", field, err)
			}
		}
	}
	for field, s := range map[string]*check.Settings{
		"allowNestedSandbox":          {AllowNestedSandbox: true},                           // SDK-B6
		"network.allowLocalBinding":   {Network: &check.Network{AllowLocalBinding: true}},   // SDK-B14
		"network.allowUnixSockets":    {Network: &check.Network{AllowUnixSockets: true}},    // SDK-B15
		"network.allowAllUnixSockets": {Network: &check.Network{AllowAllUnixSockets: true}}, // SDK-B15
		"ripgrep":                     {Ripgrep: &check.Ripgrep{Command: "rg"}},             // SDK-B17
		"allowUnsandboxedCommands":    {AllowUnsandboxedCommands: true},                     // SDK-B8
	} {
		e := engine(t, policy.Config{Sandbox: s})
		if l := e.Lint(); !slices.ContainsFunc(l, func(s string) bool { return strings.HasPrefix(s, field+" ") }) {
			t.Errorf("%s: %q", field, l)
		}
	}
	if l := engine(t, policy.Config{Sandbox: &check.Settings{DeniedCommands: []string{"rm"}}}).Lint(); len(l) != 0 {
		t.Errorf("%q", l)
	}
}
