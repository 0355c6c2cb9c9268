package policy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

// What a deny rule catches, and what it lets be (SDK-P20).
func TestDenyRules(t *testing.T) {
	for _, c := range []struct {
		rule, tool, field, value string
		denied                   bool
	}{
		{"Bash", "Bash", "command", "ls", true},
		{"bash", "Bash", "command", "ls", true},
		{"Bash(rm *)", "Bash", "command", "rm -rf x", true},
		{"Bash(rm *)", "Bash", "command", "rm", true},
		{"BASH(rm *)", "Bash", "command", "rm x", true},
		{"Bash(rm *)", "Bash", "command", "rmdir x", false},
		{"Bash(rm *)", "Bash", "command", "echo rm x", false},
		{"Bash(rm *)", "Bash", "command", "ls; /bin/rm x", true},
		{"Bash(rm *)", "Bash", "command", "env A=1 'rm' x", true},
		{"Bash(rm *)", "Bash", "command", "bash -c 'rm x'", true},
		{"Bash(rm *)", "Bash", "command", "$CMD x", true},
		{"Bash(rm *)", "Bash", "command", "if (", true},
		{"Bash(rm *)", "Bash", "command", "echo $X", false},
		{"Bash(git push *)", "Bash", "command", "git push --force", true},
		{"Bash(git push *)", "Bash", "command", "git status", false},
		{"Bash(git push *)", "Bash", "command", "git $X", true},
		{"Bash(npm run test:*)", "Bash", "command", "npm run test -- -x", true},
		{"Bash(npm run test:*)", "Bash", "command", "npm run tests", false},
		{"Bash(* --force)", "Bash", "command", "git push --force", true},
		{"Read(/etc/**)", "Read", "file_path", "/etc/a/b", true},
		{"Read(/etc/**)", "Read", "file_path", "/etc", true},
		{"Read(/etc/**)", "Read", "file_path", "/etcx", false},
		{"Read(/etc/**)", "Grep", "path", "/etc", true},
		{"Read(/etc/**)", "Read", "file_path", "/workspace/../etc/x", true},
		{"Read(~/.ssh/**)", "Read", "file_path", "/home/agent/.ssh/id", true},
		{"Read(~/.ssh/**)", "Read", "file_path", "~/.ssh/id", true},
		{"Read(*.pem)", "Read", "file_path", "a/b/x.pem", true},
		{"Read(./secret/**)", "Read", "file_path", "secret/x", true},
		{"Read(**/.env)", "Read", "file_path", "a/.env", true},
		{"Edit(/etc/**)", "Write", "file_path", "/etc/x", true},
		{"Edit(/etc/**)", "Read", "file_path", "/etc/x", false},
		{"Write(/etc/**)", "Edit", "file_path", "/etc/x", false},
		{"WebFetch(domain:example.com)", "WebFetch", "url", "https://example.com/x", true},
		{"WebFetch(domain:*.example.com)", "WebFetch", "url", "https://a.example.com", true},
		{"WebFetch(domain:example.com)", "WebFetch", "url", "https://example.com.evil.org", false},
		{"mcp__github", "mcp__github__push", "x", "", true},
		{"mcp__github__*", "mcp__github__push", "x", "", true},
		{"mcp__github__push", "mcp__github__pull", "x", "", false},
		{"mcp__git", "mcp__github__push", "x", "", false},
		{"Task(reviewer)", "Task", "subagent_type", "reviewer", true},
		{"Task(reviewer)", "Task", "subagent_type", "other", false},
	} {
		e := engine(t, policy.Config{Rules: rules(t, nil, nil, []string{c.rule})})
		b, _ := json.Marshal(map[string]string{c.field: c.value})
		d := decide(t, e, policy.Request{Mode: holdfast.ModeBypassPermissions, Tool: c.tool, Input: b, ReadOnly: c.tool != "Write" && c.tool != "Edit"})
		if (d.Verdict == policy.Denied) != c.denied || c.denied && d.Rule != c.rule {
			t.Errorf("%s, %s %q: %+v", c.rule, c.tool, c.value, d)
		}
	}
	e := engine(t, policy.Config{Rules: rules(t, nil, nil, []string{"Bash(rm *)"})})
	if d := decide(t, e, policy.Request{Mode: holdfast.ModeBypassPermissions, Tool: "Bash", Input: json.RawMessage(`{"command":1}`)}); d.Verdict != policy.Denied {
		t.Errorf("an input that cannot be read: %+v", d)
	}
}

// An allow rule has to cover all of a line, and covers no more (SDK-P20).
func TestAllowRules(t *testing.T) {
	e := engine(t, policy.Config{Rules: rules(t, []string{"Bash(git *)", "Bash(ls:*)", "Read(/data/**)", "Write(/data/**)", "mcp__x"}, nil, nil)})
	for cmd, want := range map[string]bool{
		"git status": true, "git status && ls -l": true, "git": true, "ls": true, "git log | ls": true, "git log > /dev/null": true,
		"git status; rm x": false, "git status > x": false, "git $(rm x)": false, "$X": false, "lsof": false, "./git status": false, "/tmp/git x": false, "timeout 5 git status": false, "GIT_PAGER=x git log": false, "": false,
	} {
		if d := decide(t, e, bash(holdfast.ModeDefault, cmd)); (d.Verdict == policy.Allowed) != want {
			t.Errorf("%q: %+v", cmd, d)
		}
	}
	if d := decide(t, e, file(holdfast.ModeDontAsk, "Write", "/data/x")); d.Verdict != policy.Allowed {
		t.Errorf("%+v", d)
	}
	if d := decide(t, e, file(holdfast.ModeDontAsk, "Edit", "/data/x")); d.Verdict != policy.Denied {
		t.Errorf("%+v", d)
	}
	if d := decide(t, e, policy.Request{Mode: holdfast.ModeDontAsk, Tool: "mcp__x__y", Input: json.RawMessage("{}")}); d.Verdict != policy.Allowed {
		t.Errorf("%+v", d)
	}
}

func TestRulesThatMakeNoSense(t *testing.T) {
	for _, s := range []string{
		"", " ", "Bash(", "Bash()", "Bash( )", "Nope", "Nope(x)", "Read([)", "WebFetch(example.com)", "WebFetch(domain:http://x)", "TodoWrite(x)", "mcp__", "mcp__x(y)", "Bash)x", "(x)",
		"Read(secrets/**), Read(.env)", "Bash(rm *), Bash(curl *)", "Bash(rm *) Bash(curl *)", "Bash(a);WebFetch(domain:example.com)", "Bash(rm *),Read",
	} {
		_, err := policy.ParseRules(nil, []string{"Bash", s}, nil)
		if !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), "permissions.ask[1]") || holdfast.HintOf(err) == "" {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func FuzzParseRule(f *testing.F) {
	f.Add("Bash(git *)", "git push")
	f.Add("Read(~/.ssh/**)", "/x")
	f.Fuzz(func(t *testing.T, s, value string) {
		r, err := policy.ParseRule(s)
		if err != nil {
			return
		}
		again, err := policy.ParseRule(r.String())
		if err != nil || again != r {
			t.Errorf("%q reads as %+v and that as %+v, %v", s, r, again, err)
		}
		e, err := policy.New(policy.Config{Rules: policy.RuleSet{Deny: []policy.Rule{r}, Allow: []policy.Rule{r}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range []string{"Bash", "Read", "Write", "WebFetch", "Task"} {
			b, _ := json.Marshal(map[string]string{"command": value, "file_path": value, "url": value, "subagent_type": value})
			if _, err := e.Decide(t.Context(), policy.Request{Mode: holdfast.ModeDefault, Tool: tool, Input: b}); err != nil {
				t.Errorf("%s: %v", tool, err)
			}
		}
	})
}

// Changes of the rules, by destination (SDK-P18).
func TestUpdates(t *testing.T) {
	var p policy.Permissions
	must := func(u policy.Update) {
		t.Helper()
		var err error
		if p, err = p.Apply(u); err != nil {
			t.Fatal(err)
		}
	}
	must(policy.Update{Type: policy.AddRules, Destination: policy.ToSession, Behavior: "allow", Rules: []string{"Bash(git *)", "Read", "Read"}})
	must(policy.Update{Type: policy.AddRules, Destination: policy.ToUser, Behavior: "deny", Rules: []string{"Bash(rm *)"}})
	before := p
	must(policy.Update{Type: policy.RemoveRules, Destination: policy.ToSession, Behavior: "allow", Rules: []string{"Read"}})
	if all := p.All(); len(all.Allow) != 1 || len(all.Deny) != 1 || len(before.All().Allow) != 2 {
		t.Errorf("%+v, before %+v", all, before.All())
	}
	must(policy.Update{Type: policy.ReplaceRules, Destination: policy.ToUser, Behavior: "deny", Rules: []string{"Bash(su *)"}})
	must(policy.Update{Type: policy.SetMode, Destination: policy.ToSession, Mode: holdfast.ModePlan})
	must(policy.Update{Type: policy.AddDirectories, Destination: policy.ToSession, Directories: []string{"/a", "/b"}})
	must(policy.Update{Type: policy.RemoveDirectories, Destination: policy.ToSession, Directories: []string{"/a"}})
	if p.Mode != holdfast.ModePlan || p.All().Deny[0].Spec != "su *" || len(p.Directories[policy.ToSession]) != 1 {
		t.Errorf("%+v", p)
	}
	for _, u := range []policy.Update{
		{},
		{Type: policy.AddRules},
		{Type: policy.AddRules, Destination: policy.ToSession},
		{Type: policy.AddRules, Destination: policy.ToSession, Behavior: "allow", Rules: []string{""}},
		{Type: "x", Destination: policy.ToSession},
		{Type: policy.SetMode, Destination: policy.ToSession, Mode: "yolo"},
		{Type: policy.AddDirectories, Destination: policy.ToSession, Directories: []string{"x"}},
		{Type: policy.SetMode, Destination: "x", Mode: holdfast.ModePlan},
	} {
		if _, err := p.Apply(u); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%+v: %v", u, err)
		}
	}
}

// TestSDKP20_NamesWithoutRegardToCase: a list may spell a tool in any case, scoped or
// not, to allow, to ask and to deny.
func TestSDKP20_NamesWithoutRegardToCase(t *testing.T) {
	for _, name := range []string{"Bash", "bash", "BASH"} {
		for _, spec := range []string{"", "(git *)"} {
			rule := name + spec
			for list, want := range map[string]policy.Verdict{"allow": policy.Allowed, "ask": policy.Denied, "deny": policy.Denied} {
				lists := map[string][]string{list: {rule}}
				e := engine(t, policy.Config{Rules: rules(t, lists["allow"], lists["ask"], lists["deny"])})
				mode := holdfast.ModeBypassPermissions
				if list == "allow" {
					mode = holdfast.ModeDontAsk
				}
				d := decide(t, e, bash(mode, "git status"))
				if d.Rule != rule || d.Verdict != want { // nobody can be asked here
					t.Errorf("%s %s: %+v", list, rule, d)
				}
			}
		}
	}
}
