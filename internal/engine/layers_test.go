package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/settings"
	"github.com/holdfast-run/holdfast/policy"
)

// decider is a runtime that does nothing but ask: between the steps it waits for
// the test.
type decider struct {
	steps, done chan struct{}
	ask         policy.Request
	got         []policy.Decision
}

func newDecider(tool, input string) *decider {
	return &decider{steps: make(chan struct{}), done: make(chan struct{}), ask: policy.Request{Tool: tool, Input: json.RawMessage(input), ReadOnly: policy.Reads(tool)}}
}

func (d *decider) Name() string              { return "native" }
func (d *decider) Forget(holdfast.SessionID) {}

func (d *decider) Run(ctx context.Context, t runtime.Turn, host runtime.Host) (runtime.Result, error) {
	var seen int64
	for ev, err := range host.Log(ctx, 0) {
		if err != nil {
			return runtime.Result{}, err
		}
		seen = ev.Seq
	}
	for range d.steps {
		got, err := host.Decide(ctx, d.ask)
		if err != nil {
			got = policy.Deny("error: " + err.Error())
		}
		d.got = append(d.got, got)
		if _, err := host.Keep(ctx, nil, journal.Draft{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: "test"}}); err != nil {
			return runtime.Result{}, err
		}
		d.done <- struct{}{}
	}
	return runtime.Result{Seen: seen, Text: "done"}, nil
}

// decide takes one step and returns what was decided.
func (d *decider) decide() policy.Decision {
	d.steps <- struct{}{}
	<-d.done
	return d.got[len(d.got)-1]
}

// folder is a registry whose agent has a folder.
type folder struct {
	oneAgent
	files map[string][]byte
}

func (f folder) Settings(context.Context, holdfast.VersionID) (settings.Settings, error) {
	return settings.Parse(f.files, nil)
}

func (f folder) Files(context.Context, holdfast.VersionID) ([]rooted.File, error) {
	var out []rooted.File
	for name, data := range f.files {
		out = append(out, rooted.File{Path: name, Mode: 0o644, Content: data})
	}
	return out, nil
}

// layered is a world with a running turn that asks.
func layered(t *testing.T, d *decider, files map[string][]byte, base policy.Config) (*world, holdfast.SessionID, string) {
	t.Helper()
	server, err := policy.New(base)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, d, func(c *engine.Config) {
		// What is asked is denied: nobody answers.
		c.Agents, c.Policy, c.Turns.ApprovalTimeout = folder{files: files}, server, time.Millisecond
	})
	id := w.create(holdfast.CreateSession{})
	dir := filepath.Join(w.dir, "sessions", string(id), "workspace")
	if err := os.MkdirAll(filepath.Join(dir, ".claude"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.send(id, "go")
	t.Cleanup(func() { close(d.steps) })
	return w, id, dir
}

// TestSDKP9_ModeChangesInTheMiddleOfATurn: an update of the mode holds from the
// next call that is decided on, in the turn that runs (SDK-P9).
func TestSDKP9_ModeChangesInTheMiddleOfATurn(t *testing.T) {
	d := newDecider("Bash", `{"command":"ls"}`)
	w, id, _ := layered(t, d, nil, policy.Config{})
	if got := d.decide(); got.Verdict != policy.Allowed || got.By != "mode" {
		t.Fatalf("in mode bypassPermissions: %+v", got)
	}
	for _, c := range []struct {
		mode holdfast.Mode
		want policy.Verdict
		by   string
	}{{holdfast.ModeDontAsk, policy.Denied, "mode"}, {holdfast.ModeBypassPermissions, policy.Allowed, "mode"}, {holdfast.ModePlan, policy.Denied, "approval"}} {
		mode := string(c.mode)
		if _, err := w.Update(t.Context(), id, holdfast.UpdateSession{Mode: &mode}); err != nil {
			t.Fatal(err)
		}
		if got := d.decide(); got.Verdict != c.want || got.By != c.by {
			t.Errorf("after the change to %s: %+v", mode, got)
		}
	}
}

// TestSDKB19_LayersOfASession: the rules of the server, of the agent's version and
// of the session decide together, deny before ask before allow (SDK-B19, SDK-P20).
func TestSDKB19_LayersOfASession(t *testing.T) {
	files := map[string][]byte{
		settings.OwnFile:    []byte("permissions: {allow: ['Bash(git *)'], sandbox: {deniedPaths: [/workspace/secret]}}"),
		settings.ClaudeFile: []byte(`{"permissions": {"deny": ["Bash(git push *)"]}}`),
	}
	server, err := policy.ParseRules([]string{"Bash(ls *)"}, nil, []string{"Bash(git reset *)"})
	if err != nil {
		t.Fatal(err)
	}
	d := newDecider("Bash", "")
	w, id, _ := layered(t, d, files, policy.Config{Rules: server})
	mode := string(holdfast.ModeDontAsk)
	if _, err := w.Update(t.Context(), id, holdfast.UpdateSession{Mode: &mode}); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"git log": "allow by allow rule", "ls x": "allow by allow rule", "git push x": "deny by deny rule", "git reset x": "deny by deny rule",
		"make": "deny by mode", "git show secret/x": "deny by sandbox",
	} {
		d.ask.Input = json.RawMessage(fmt.Sprintf(`{"command":%q}`, command))
		got := d.decide()
		if s := got.Verdict.String() + " by " + got.By; s != want {
			t.Errorf("%s: %s (%s), want %s", command, s, got.Reason, want)
		}
	}
}

// TestRulesOfTheSessionHoldAtOnce: a rule that an answer left, or that was taken
// away, holds from the next call in the turn that runs.
func TestRulesOfTheSessionHoldAtOnce(t *testing.T) {
	d := newDecider("Bash", `{"command":"make x"}`)
	w, id, _ := layered(t, d, nil, policy.Config{})
	mode := string(holdfast.ModeDefault)
	if _, err := w.Update(t.Context(), id, holdfast.UpdateSession{Mode: &mode}); err != nil {
		t.Fatal(err)
	}
	change := func(scope holdfast.ApprovalScope, behavior string, removed bool) {
		t.Helper()
		c := journal.NewChange(id)
		c.Rules = []journal.RuleChange{{Key: string(id), Source: "test", RuleChange: holdfast.RuleChange{Scope: scope, Behavior: behavior, Rule: "Bash(make *)", Removed: removed}}}
		c.Events = []journal.Draft{{Type: holdfast.EventRulesChanged, Data: holdfast.RulesChanged{By: "test", Changes: []holdfast.RuleChange{c.Rules[0].RuleChange}}}}
		if _, err := w.journal.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want string) {
		t.Helper()
		if got := d.decide(); got.Verdict.String()+" by "+got.By != want {
			t.Errorf("%s by %s, want %s", got.Verdict, got.By, want)
		}
	}
	check("deny by approval")
	change(holdfast.ScopeSession, "grant", false)
	check("allow by granted rule")
	change(holdfast.ScopeWorkspace, "ask", false)
	check("allow by granted rule")
	change(holdfast.ScopeSession, "grant", true)
	check("deny by approval")
	change(holdfast.ScopeSession, "allow", false)
	check("deny by approval")
	change(holdfast.ScopeWorkspace, "ask", true)
	check("allow by allow rule")
	change(holdfast.ScopeSession, "deny", false)
	check("deny by deny rule")
}

// TestHZ6_WorkspaceSettingsOnlyTighten: what an agent writes into the settings of
// its workspace takes away and gives nothing (HZ-6, SDK-B19).
func TestHZ6_WorkspaceSettingsOnlyTighten(t *testing.T) {
	files := map[string][]byte{settings.OwnFile: []byte("permissions: {deny: ['Bash(rm *)'], ask: ['Bash(git push *)'], allow: ['Bash(git *)']}")}
	d := newDecider("Bash", "")
	w, id, dir := layered(t, d, files, policy.Config{})
	mode := string(holdfast.ModeDefault)
	if _, err := w.Update(t.Context(), id, holdfast.UpdateSession{Mode: &mode}); err != nil {
		t.Fatal(err)
	}
	own, claude := filepath.Join(dir, settings.OwnFile), filepath.Join(dir, settings.ClaudeFile)
	check := func(what, command string, want policy.Verdict, by string) {
		t.Helper()
		d.ask.Input = json.RawMessage(fmt.Sprintf(`{"command":%q}`, command))
		if got := d.decide(); got.Verdict != want || got.By != by {
			t.Errorf("%s: %s: %s by %s: %s", what, command, got.Verdict, got.By, got.Reason)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(own, string(files[settings.OwnFile]))
	check("as it was seeded", "git log", policy.Allowed, "allow rule")
	check("as it was seeded", "rm x", policy.Denied, "deny rule")
	write(own, "mode: bypassPermissions\npermissions: {allow: [Bash], sandbox: {autoAllowBashIfSandboxed: true}}\nhooks: {preToolUse: [{command: exit 0}]}\n")
	write(claude, `{"permissions": {"allow": ["Bash"], "defaultMode": "bypassPermissions"}, "hooks": {"PreToolUse": []}}`)
	check("with an allow rule for everything", "make", policy.Denied, "approval")
	check("with an allow rule for everything", "rm x", policy.Denied, "deny rule")
	check("with an allow rule for everything", "git push", policy.Denied, "approval")
	check("with an allow rule for everything", "git log", policy.Allowed, "allow rule")
	write(claude, `{"permissions": {"deny": ["Bash(git *)"]}}`)
	check("with a deny rule", "git log", policy.Denied, "deny rule")
	if err := os.Remove(claude); err != nil {
		t.Fatal(err)
	}
	check("without the file", "git log", policy.Allowed, "allow rule")
	write(own, "permissions: {sandbox: {deniedCommands: [git]}}")
	check("with a sandbox", "git log", policy.Denied, "sandbox")
}

// TestHZ6_UnreadableWorkspaceSettingsDenyEverything: nobody knows what a file would
// deny that cannot be read; the reason and one notice say how it is mended.
func TestHZ6_UnreadableWorkspaceSettingsDenyEverything(t *testing.T) {
	d := newDecider("Read", `{"file_path":"a"}`)
	w, id, dir := layered(t, d, nil, policy.Config{})
	file := filepath.Join(dir, settings.OwnFile)
	notices := func() (n int) {
		for _, ev := range w.log(id) {
			if ev.Type == holdfast.EventNotice && strings.Contains(string(ev.Data), "settings.unreadable") {
				n++
			}
		}
		return n
	}
	if got := d.decide(); got.Verdict != policy.Allowed {
		t.Fatalf("without settings: %+v", got)
	}
	for i, fault := range []struct {
		what string
		make func() error
		want string
	}{
		{"no such tool", func() error {
			return os.WriteFile(file, []byte("permissions: {deny: [Nope]}"), 0o600)
		}, `holdfast.yaml: permissions.deny[0]: rule: "Nope" is not a valid rule: there is no such tool`},
		{"not YAML", func() error { return os.WriteFile(file, []byte("]"), 0o600) }, "holdfast.yaml: the file cannot be parsed"},
		{"too large", func() error { return os.WriteFile(file, make([]byte, settings.MaxClaude+1), 0o600) }, "is longer than"},
		{"symlink", func() error { return os.Symlink("/etc/passwd", file) }, `"holdfast.yaml" is a symlink`},
		{"directory", func() error { return os.Mkdir(file, 0o700) }, `"holdfast.yaml" is a directory`},
	} {
		if err := fault.make(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got := d.decide()
			if got.Verdict != policy.Denied || got.By != "settings" || !strings.Contains(got.Reason, fault.want) || !strings.Contains(got.Reason, "holdfast files put "+string(id)) {
				t.Errorf("%s: %+v", fault.what, got)
			}
		}
		if n := notices(); n != i+1 {
			t.Errorf("%s: %d notices, want %d", fault.what, n, i+1)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if got := d.decide(); got.Verdict != policy.Allowed {
			t.Errorf("%s, mended: %+v", fault.what, got)
		}
	}
}

// BenchmarkDecide is a whole decision of a call in a turn: 20 rules in three
// layers, a sandbox, settings in the workspace.
func BenchmarkDecide(b *testing.B) {
	d := newDecider("Bash", `{"command":"git log --oneline | head -n 20"}`)
	var rules []policy.Rule
	for i := range 10 {
		r, err := policy.ParseRule(fmt.Sprintf("Bash(tool%d *)", i))
		if err != nil {
			b.Fatal(err)
		}
		rules = append(rules, r)
	}
	server, err := policy.New(policy.Config{Rules: policy.RuleSet{Deny: rules[:5], Ask: rules[5:]}})
	if err != nil {
		b.Fatal(err)
	}
	files := map[string][]byte{settings.OwnFile: []byte("permissions: {deny: [Read(/a), Read(/b), 'Bash(x *)', 'Bash(y *)', WebFetch], allow: ['Bash(git *)', 'Bash(head *)'], sandbox: {deniedPaths: [/etc]}}")}
	w := newWorld(b, benchmark{d, b}, func(c *engine.Config) { c.Agents, c.Policy = folder{files: files}, server })
	id := w.create(holdfast.CreateSession{Mode: "dontAsk"})
	dir := filepath.Join(w.dir, "sessions", string(id), "workspace", ".claude")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "settings.json"), []byte(`{"permissions": {"deny": ["Bash(a *)", "Bash(b *)", "Write(/x)"]}}`), 0o600); err != nil {
		b.Fatal(err)
	}
	w.ended(id, w.send(id, "go").ID)
}

// benchmark is a decider that asks in a loop.
type benchmark struct {
	*decider
	b *testing.B
}

func (r benchmark) Run(ctx context.Context, _ runtime.Turn, host runtime.Host) (runtime.Result, error) {
	for r.b.Loop() {
		if d, err := host.Decide(ctx, r.ask); err != nil || d.Verdict != policy.Allowed {
			r.b.Errorf("%+v %v", d, err)
		}
	}
	return runtime.Result{Seen: 1 << 40, Text: "done"}, nil
}

// TestSDKP9_TheCallbackOutlivesAChangeOfTheMode: the callback is asked under each mode
// that the turn is switched to, its opinion beats that mode, and without one the new
// mode decides.
func TestSDKP9_TheCallbackOutlivesAChangeOfTheMode(t *testing.T) {
	asked := 0
	d := newDecider("Bash", "")
	w, id, _ := layered(t, d, nil, policy.Config{Callback: policy.Func(func(_ context.Context, req policy.Request) (policy.Decision, error) {
		asked++
		switch {
		case strings.Contains(string(req.Input), "yes"):
			return policy.Allow(), nil
		case strings.Contains(string(req.Input), "no"):
			return policy.Deny("the callback says so"), nil
		}
		return policy.Decision{}, nil
	})})
	for i, c := range []struct {
		mode    holdfast.Mode
		command string
		want    string
	}{
		{holdfast.ModeBypassPermissions, "no", "deny by callback"},
		{holdfast.ModeDontAsk, "yes", "allow by callback"},
		{holdfast.ModeDontAsk, "make", "deny by mode"},
		{holdfast.ModePlan, "yes", "allow by callback"},
		{holdfast.ModeBypassPermissions, "make", "allow by mode"},
	} {
		mode := string(c.mode)
		if _, err := w.Update(t.Context(), id, holdfast.UpdateSession{Mode: &mode}); err != nil {
			t.Fatal(err)
		}
		d.ask.Input = json.RawMessage(fmt.Sprintf(`{"command":%q}`, c.command))
		got := d.decide()
		if s := got.Verdict.String() + " by " + got.By; s != c.want || asked != i+1 {
			t.Errorf("%s under %s: %s, want %s; the callback was asked %d times", c.command, mode, s, c.want, asked)
		}
	}
}
