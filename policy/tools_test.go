package policy_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

var (
	notebook = policy.Tool{Name: "NotebookEdit", Class: policy.ClassEdits, Subject: policy.SubjectPath, Field: "notebook_path"}
	skill    = policy.Tool{Name: "Skill", Class: policy.ClassRuns, Subject: policy.SubjectName, Field: "skill"}
	peek     = policy.Tool{Name: "Peek", Class: policy.ClassReads, Subject: policy.SubjectPath, Field: "where", Optional: true}
	plan     = policy.Tool{Name: "Plan", Class: policy.ClassPlans}
)

func request(mode holdfast.Mode, tool, field, value string) policy.Request {
	b, _ := json.Marshal(map[string]string{field: value})
	return policy.Request{Mode: mode, Tool: tool, Input: b, ReadOnly: tool == "Peek" || tool == "Read" || tool == "Grep"}
}

// TestToolsByRegistration: modes judge a tool by its registration; an unregistered tool
// is denied in every mode.
func TestToolsByRegistration(t *testing.T) {
	registered := policy.Config{Tools: []policy.Tool{notebook, skill, peek, plan}}
	e := engine(t, registered)
	calls := map[string]policy.Request{
		"NotebookEdit": request("", "NotebookEdit", "notebook_path", "a.ipynb"), "Skill": request("", "Skill", "skill", "review"),
		"Peek": request("", "Peek", "where", "/etc"), "Plan": request("", "Plan", "x", "y"), "plan": request("", "plan", "x", "y"),
	}
	for mode, want := range map[holdfast.Mode]string{
		holdfast.ModeBypassPermissions: "NotebookEdit Peek Plan Skill", holdfast.ModeAcceptEdits: "NotebookEdit Peek Plan", holdfast.ModeDefault: "Peek Plan",
		holdfast.ModeAuto: "NotebookEdit Peek Plan", holdfast.ModeDontAsk: "Peek Plan", holdfast.ModePlan: "Peek",
	} {
		got := ""
		for _, name := range []string{"NotebookEdit", "Peek", "Plan", "Skill", "plan"} {
			req := calls[name]
			req.Mode = mode
			if decide(t, e, req).Verdict == policy.Allowed {
				got += " " + name
			}
			if d := decide(t, new(policy.Engine), req); d.Verdict != policy.Denied {
				t.Errorf("%s: %s is not registered: %+v", mode, name, d)
			}
		}
		if got != " "+want {
			t.Errorf("%s allows%s, want %s", mode, got, want)
		}
	}
	if d := decide(t, e, request(holdfast.ModeAcceptEdits, "NotebookEdit", "notebook_path", "/etc/a.ipynb")); d.Verdict == policy.Allowed {
		t.Errorf("an edit outside of the workspace: %+v", d)
	}
}

// TestRulesAndSettingsOfRegisteredTools: a tool is registered with the input field that
// holds its subject. Rules, sandbox settings and the scope apply to that field.
func TestRulesAndSettingsOfRegisteredTools(t *testing.T) {
	registered := policy.Config{Tools: []policy.Tool{notebook, skill, peek, plan}}
	rule := func(list ...string) policy.RuleSet {
		r, err := policy.ParseRules(nil, nil, list, registered.Tools...)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for text, want := range map[string]string{
		"Edit(/etc/**)": "NotebookEdit", "NotebookEdit(/etc/**)": "NotebookEdit", "notebookedit": "NotebookEdit", "Edit": "", "Write(/etc/**)": "",
		"Read(/etc/**)": "NotebookEditPeek", "Peek(/etc/**)": "Peek", "Skill(review)": "Skill", "Skill(other)": "", "Skill(agent:review)": "", "Skill(agent)": "", "Skill(view)": "", "Skill": "Skill",
	} {
		cfg := registered
		cfg.Rules = rule(text)
		got := ""
		for _, req := range []policy.Request{
			request(holdfast.ModeBypassPermissions, "NotebookEdit", "notebook_path", "/etc/a"), request(holdfast.ModeBypassPermissions, "Peek", "where", "/etc/a"),
			request(holdfast.ModeBypassPermissions, "Skill", "skill", "review"),
		} {
			if decide(t, engine(t, cfg), req).Verdict == policy.Denied {
				got += req.Tool
			}
		}
		if got != want {
			t.Errorf("the rule %s denies %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]policy.Verdict{
		"Skill(review)": policy.Denied, "Skill(agent:review)": policy.Denied, "Skill(agent:*)": policy.Denied, "Skill(agent)": policy.Allowed, "Skill(other:review)": policy.Allowed,
	} {
		cfg := registered
		cfg.Rules = rule(text)
		if got := decide(t, engine(t, cfg), request(holdfast.ModeBypassPermissions, "Skill", "skill", "agent:review")).Verdict; got != want {
			t.Errorf("the rule %s and agent:review: %s", text, got)
		}
	}
	cfg := registered
	cfg.Sandbox = &check.Settings{DeniedPaths: []string{"/secret"}, DeniedWritePaths: []string{"/workspace/.git"}, AllowedWritePaths: []string{"/workspace"}}
	held := engine(t, cfg)
	for _, c := range []struct {
		req  policy.Request
		want policy.Verdict
	}{
		{request(holdfast.ModeBypassPermissions, "NotebookEdit", "notebook_path", "a.ipynb"), policy.Allowed},
		{request(holdfast.ModeBypassPermissions, "NotebookEdit", "notebook_path", ".git/a.ipynb"), policy.Denied},
		{request(holdfast.ModeBypassPermissions, "NotebookEdit", "notebook_path", "/etc/a.ipynb"), policy.Denied},
		{request(holdfast.ModeBypassPermissions, "NotebookEdit", "file_path", "a.ipynb"), policy.Denied},
		{request(holdfast.ModeBypassPermissions, "Peek", "where", ".git"), policy.Allowed},
		{request(holdfast.ModeBypassPermissions, "Peek", "where", "/secret/x"), policy.Denied},
	} {
		if d := decide(t, held, c.req); d.Verdict != c.want {
			t.Errorf("%s %s: %+v", c.req.Tool, c.req.Input, d)
		}
	}
	for tool, want := range map[string]policy.Scope{
		"NotebookEdit": {Denied: []string{"/secret", "/workspace/.git"}, Within: [][]string{{"/workspace"}}}, "Peek": {Denied: []string{"/secret"}}, "Skill": {},
	} {
		if got, err := held.Scope(t.Context(), policy.Request{Tool: tool}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("the scope of %s is %+v (%v)", tool, got, err)
		}
	}
}

func TestRulesNameRegisteredTools(t *testing.T) {
	e := engine(t, policy.Config{Tools: []policy.Tool{notebook, skill, plan}})
	for _, s := range []string{"NotebookEdit", "notebookedit(*.ipynb)", "Skill(review)", "Plan", "Read(/etc/**)"} {
		if _, err := e.ParseRule(s); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, s := range []string{"NotebookRead", "Plan(x)", "NotebookEdit(/a/)", "NotebookEdit()", "Peek", "Not Book"} {
		if _, err := e.ParseRule(s); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v", s, err)
		}
	}
	if _, err := policy.ParseRule("NotebookEdit"); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("a tool that nobody registered: %v", err)
	}
	for s, ok := range map[string]bool{"NotebookEdit(/a/)": true, "Nope": true, "Nope(": false, "No pe": false, "": false, "Read(/a/)": false, "mcp__": false} {
		if err := policy.CheckRule(s); (err == nil) != ok {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// TestRegistrationsThatMakeNoSense are refused, and so is a name with two meanings.
func TestRegistrationsThatMakeNoSense(t *testing.T) {
	other := notebook
	other.Class = policy.ClassReads
	for _, list := range [][]policy.Tool{
		{{Class: policy.ClassReads}},
		{{Name: "a b", Class: policy.ClassReads}},
		{{Name: "mcp__x__y", Class: policy.ClassReads}},
		{{Name: "X"}},
		{{Name: "X", Class: policy.ClassRuns + 1}},
		{{Name: "X", Class: policy.ClassEdits}},
		{{Name: "X", Class: policy.ClassEdits, Subject: policy.SubjectPath}},
		{{Name: "X", Class: policy.ClassRuns, Field: "x"}},
		{{Name: "X", Class: policy.ClassEdits, Subject: policy.SubjectPath, Field: "p", Optional: true}},
		{{Name: "Bash", Class: policy.ClassReads}},
		{{Name: "bash", Class: policy.ClassRuns, Subject: policy.SubjectCommand, Field: "command"}},
		{notebook, other},
	} {
		if _, err := policy.New(policy.Config{Tools: list}); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%+v: %v", list, err)
		}
	}
	e := engine(t, policy.Config{Tools: append(policy.StandardTools(), notebook, notebook)})
	if more, err := e.With(policy.Config{Tools: []policy.Tool{notebook}}); err != nil || len(more.Tools()) != 1 {
		t.Errorf("%v", err)
	}
	if _, err := e.With(policy.Config{Tools: []policy.Tool{other}}); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("%v", err)
	}
}

// TestRulesIgnoreCase: rules of all kinds match a tool's name in any case.
func TestRulesIgnoreCase(t *testing.T) {
	for _, c := range []struct {
		rule string
		req  policy.Request
	}{
		{"bash(git *)", bash(holdfast.ModeDefault, "git status")},
		{"BASH", bash(holdfast.ModeDefault, "git status")},
		{"webfetch(domain:example.com)", request(holdfast.ModeDefault, "WebFetch", "url", "https://example.com/x")},
		{"edit(/workspace/**)", request(holdfast.ModeDefault, "Write", "file_path", "a")},
		{"task(reviewer)", request(holdfast.ModeDefault, "Task", "subagent_type", "reviewer")},
		{"mcp__GitHub", policy.Request{Mode: holdfast.ModeDefault, Tool: "mcp__github__push", Input: json.RawMessage(`{}`)}},
		{"mcp__github__Push", policy.Request{Mode: holdfast.ModeDefault, Tool: "mcp__github__push", Input: json.RawMessage(`{}`)}},
	} {
		if d := decide(t, engine(t, policy.Config{Rules: rules(t, []string{c.rule}, nil, nil)}), c.req); d.Verdict != policy.Allowed || d.By != "allow rule" {
			t.Errorf("allow %s: %+v", c.rule, d)
		}
		if d := decide(t, engine(t, policy.Config{Rules: rules(t, nil, nil, []string{c.rule})}), c.req); d.Verdict != policy.Denied || d.By != "deny rule" {
			t.Errorf("deny %s: %+v", c.rule, d)
		}
		if d := decide(t, engine(t, policy.Config{Granted: rules(t, []string{c.rule}, nil, nil).Allow}), c.req); d.Verdict != policy.Allowed {
			t.Errorf("grant %s: %+v", c.rule, d)
		}
	}
}

// TestFieldsCountAsTheyAreSpelled: the tools read the fields of an input by their exact
// names, so that a second spelling cannot show the policy another value.
func TestFieldsCountAsTheyAreSpelled(t *testing.T) {
	e := engine(t, policy.Config{Rules: rules(t, nil, nil, []string{"Read(/etc/**)", "Bash(rm *)"})})
	for _, req := range []policy.Request{
		{Tool: "Read", ReadOnly: true, Input: json.RawMessage(`{"file_path":"/etc/shadow","FILE_PATH":"a","path":"a"}`)},
		{Tool: "Grep", ReadOnly: true, Input: json.RawMessage(`{"path":"/etc/x","file_path":"a","Path":"a"}`)},
		{Tool: "Bash", Input: json.RawMessage(`{"command":"rm x","COMMAND":"ls"}`)},
		{Tool: "Bash", Input: json.RawMessage(`{"command":"ls","command":"rm x"}`)},
		{Tool: "Bash", Input: json.RawMessage(`{"command":["rm","x"]}`)},
	} {
		req.Mode = holdfast.ModeBypassPermissions
		if d := decide(t, e, req); d.Verdict != policy.Denied {
			t.Errorf("%s %s: %+v", req.Tool, req.Input, d)
		}
	}
}

// TestTheSubjectIsWhatIsJudged: a program that shows a call to a person gets the text that the rules match.
func TestTheSubjectIsWhatIsJudged(t *testing.T) {
	for _, c := range []struct{ tool, input, want string }{
		{"Bash", `{"command":"ls","command":"rm x","COMMAND":"id","file_path":"a"}`, "rm x"},
		{"Write", `{"path":"b","file_path":"a","command":"ls"}`, "a"},
		{"NotebookEdit", `{"notebook_path":"a","file_path":"b"}`, "a"},
		{"WebFetch", `{"url":"http://x","command":"ls"}`, "http://x"},
		{"Task", `{"subagent_type":"x","description":"y"}`, "x"},
		{"Grep", `{"pattern":"x","file_path":"a"}`, ""},
		{"TodoWrite", `{"command":"ls"}`, ""},
	} {
		tool, got, ok := policy.SubjectOf(c.tool, json.RawMessage(c.input), notebook)
		if !ok || tool.Name != c.tool || got != c.want {
			t.Errorf("%s %s: %q of the tool %q, %t", c.tool, c.input, got, tool.Name, ok)
		}
	}
	for _, c := range [][2]string{
		{"Bash", `{"command":["ls"]}`},
		{"Bash", `[]`},
		{"Bash", ``},
		{"bash", `{"command":"ls"}`},
		{"", `{}`},
		{"Skill", `{"skill":"x"}`},
		{"mcp__x__y", `{"command":"ls"}`},
	} {
		if tool, got, ok := policy.SubjectOf(c[0], json.RawMessage(c[1]), notebook); ok || got != "" || tool.Name != "" {
			t.Errorf("%q: %q of the tool %q", c, got, tool.Name)
		}
	}
}
