package policy_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// TestScopeHoldsDenyRules: deny rules for paths reach the code that opens files, in
// every form of rule and from every layer; Read rules apply to editing too.
func TestScopeHoldsDenyRules(t *testing.T) {
	for spec, want := range map[string]policy.Scope{
		"/etc/shadow":   {Denied: []string{"/etc/shadow"}},
		"//etc/perl/**": {Denied: []string{"/etc/perl"}},
		"/etc/**":       {Denied: []string{"/etc"}},
		"~/.ssh/**":     {Denied: []string{"/home/agent/.ssh"}},
		"./a/b":         {Denied: []string{"/workspace/a/b"}},
		"a/b/**":        {Denied: []string{"/workspace/a/b"}},
		"../x":          {Denied: []string{"/x"}},
		"**":            {Denied: []string{"/"}},
		"**/**":         {Denied: []string{"/"}},
		".env":          {Patterns: []string{"/**/.env"}},
		"*.pem":         {Patterns: []string{"/**/*.pem"}},
		"**/.env":       {Patterns: []string{"/**/.env"}},
		"**/keys/**":    {Patterns: []string{"/**/keys"}},
		"/a/*/b":        {Patterns: []string{"/a/*/b"}},
		"~/k?/**":       {Patterns: []string{"/home/agent/k?"}},
		`/a/\*`:         {Patterns: []string{`/a/\*`}},
	} {
		e := engine(t, policy.Config{Rules: rules(t, nil, nil, []string{"Read(" + spec + ")"})})
		for _, tool := range []string{"Read", "Grep", "Glob", "LS", "Write", "Edit", "grep"} {
			if got, err := e.Scope(t.Context(), policy.Request{Tool: tool}); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("Read(%s) leaves %s %+v (%v), want %+v", spec, tool, got, err, want)
			}
		}
	}
	e := engine(t, policy.Config{Rules: rules(t, []string{"Read(/a)"}, []string{"Read(/b)"}, []string{"Edit(/e)", "Write(/w)", "Grep(/g)", "Bash(cat *)", "Read"})})
	e, err := e.With(policy.Config{Tools: []policy.Tool{notebook}, Rules: rules(t, nil, nil, []string{"read(/r)"}), Sandbox: &check.Settings{DeniedPaths: []string{"/d"}}})
	if err != nil {
		t.Fatal(err)
	}
	for tool, want := range map[string]string{
		"Read": "/d /r", "LS": "/d /r", "Grep": "/d /g /r", "Edit": "/d /e /r", "NotebookEdit": "/d /e /r", "Write": "/d /e /w /r", "Bash": "", "WebFetch": "", "Nope": "",
	} {
		if got, err := e.Scope(t.Context(), policy.Request{Tool: tool}); err != nil || strings.Join(got.Denied, " ") != want {
			t.Errorf("%s is kept from %q (%v), want %q", tool, got.Denied, err, want)
		}
	}
	odd := policy.Request{Tool: "Read", Cwd: "/srv/[a]*", Home: `/home/x\y`}
	e = engine(t, policy.Config{Rules: rules(t, nil, nil, []string{"Read(./k)", "Read(~/*.pem)"})})
	if got, _ := e.Scope(t.Context(), odd); !reflect.DeepEqual(got.Patterns, []string{`/srv/\[a]\*/k`, `/home/x\\y/*.pem`}) {
		t.Errorf("directories with wildcards in their names: %+v", got)
	}
	if got, _ := engine(t, policy.Config{Refuse: "unreadable"}).Scope(t.Context(), policy.Request{Tool: "Read"}); !reflect.DeepEqual(got.Denied, []string{"/"}) {
		t.Errorf("with settings that cannot be read: %+v", got)
	}
}
