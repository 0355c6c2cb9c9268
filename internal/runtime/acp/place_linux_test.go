package acp_test

import (
	"context"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime/acp"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// ruled returns the policy with the given allow and deny rules, separated by blanks, as a decision of a judge.
func ruled(t *testing.T, mode holdfast.Mode, allow, deny string) func(context.Context, policy.Request) (policy.Decision, error) {
	t.Helper()
	rules, err := policy.ParseRules(strings.Fields(allow), nil, strings.Fields(deny))
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.New(policy.Config{Rules: rules, Sandbox: &check.Settings{}})
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, req policy.Request) (policy.Decision, error) {
		req.Mode = mode
		return p.Decide(ctx, req)
	}
}

// TestACommandIsJudgedInItsDirectory: a rule for a command does not allow the same command in another directory, where its
// relative paths lead to other programs and files.
func TestACommandIsJudgedInItsDirectory(t *testing.T) {
	for fields, want := range map[string]string{
		`"cwd":"/workspace"`:                             "yes",
		`"workdir":"/workspace/","cwd":"."`:              "yes",
		`"dir":"","directory":null`:                      "yes",
		`"workdir":"/tmp/evil"`:                          "no",
		`"cwd":"/workspace","workdir":"/tmp/evil"`:       "no",
		`"working_directory":"../tmp"`:                   "no",
		`"dir_path":"/workspace/../tmp"`:                 "no",
		`"cwd":["/workspace"]`:                           "no",
		`"workingDirectory":"/tmp' && : '"`:              "no",
		`"workdir":"/workspace","currentDir":"/tmp/[a]"`: "no",
	} {
		r := scriptedAgent(t, func(c *acp.Config) { c.Profile.Env["FIELDS"] = fields })
		j := &judge{rules: ruled(t, holdfast.ModeDontAsk, "Bash(./ci/test.sh)", "")}
		if err := r.judged("WORKDIR", j); err != nil {
			t.Fatal(err)
		}
		if got := r.answers(); got != want {
			t.Errorf("%s: answered %s, want %s; judged %q", fields, got, want, j.inputs)
		}
	}
}

// TestOneIDIsOneTool: a permission request for another tool under the id of a call is refused, and one that does not say
// which tool it is about is decided as one for the call's own.
func TestOneIDIsOneTool(t *testing.T) {
	r, j := scriptedAgent(t, nil), &judge{rules: ruled(t, holdfast.ModeAuto, "", "Bash")}
	if err := r.judged("SAMEID", j); err != nil {
		t.Fatal(err)
	}
	if got := r.answers(); got != "yes yes no yes" || r.notices("agent.other_tool") != 1 {
		t.Errorf("answered %s, with %d notices; judged %q", got, r.notices("agent.other_tool"), j.inputs)
	}
}
