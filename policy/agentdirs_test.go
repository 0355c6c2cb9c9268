package policy_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

// TestWSR83_FileToolsKeepOutOfAgentDirs: no file tool opens a directory in which an agent keeps its configuration,
// whatever mode and rules say, but for the results of calls that the agent stored there for its model. Commands do.
func TestWSR83_FileToolsKeepOutOfAgentDirs(t *testing.T) {
	e := engine(t, policy.Config{
		Tools: []policy.Tool{notebook},
		Rules: rules(t, []string{"Read", "Edit", "Read(~/.claude/**)"}, nil, nil),
		AgentDirs: []policy.AgentDir{
			{Path: ".claude", Results: "projects/*/*/tool-results/**"}, {Path: ".claude"}, {Path: ".local/share/opencode"},
		},
	})
	child, err := e.With(policy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	const kept, stored = "~/.claude/projects/-workspace/x.jsonl", "~/.claude/projects/-workspace/x/tool-results/1.txt"
	for _, c := range []struct {
		tool, input string
		unscoped    bool
		want        policy.Verdict
	}{
		{"Read", `{"file_path":"` + kept + `"}`, false, policy.Denied},
		{"Read", `{"file_path":"/home/agent/.claude/settings.json"}`, false, policy.Denied},
		{"Read", `{"file_path":"../home/agent/x/../.claude"}`, false, policy.Denied},
		{"read", `{"file_path":"~/.local/share/opencode/auth.json"}`, false, policy.Denied},
		{"Write", `{"file_path":"~/.claude/settings.json","content":"{}"}`, false, policy.Denied},
		{"Edit", `{"file_path":"~/.claude/settings.json","old_string":"a","new_string":"b"}`, false, policy.Denied},
		{"NotebookEdit", `{"notebook_path":"~/.claude/n.ipynb"}`, false, policy.Denied},
		{"LS", `{"path":"~/.claude"}`, false, policy.Denied},
		{"Grep", `{"pattern":"x","path":"~/.claude/projects"}`, false, policy.Denied},
		{"Glob", `{"pattern":"*.json","path":"~/.claude"}`, false, policy.Denied},
		{"Glob", `{"pattern":"/home/agent/.claude/**/*.jsonl"}`, false, policy.Denied},
		{"Glob", `{"pattern":"~/.claude/*"}`, false, policy.Denied},
		{"Glob", `{"pattern":".claude/*.json","path":"~"}`, false, policy.Denied},
		{"Read", `{"file_path":"` + stored + `"}`, false, policy.Allowed},
		{"Write", `{"file_path":"` + stored + `","content":""}`, false, policy.Denied},
		{"Read", `{"file_path":"~/.claude/projects/-workspace/x/tool-results/../../y.jsonl"}`, false, policy.Denied},
		{"Read", `{"file_path":"~/.claudette"}`, false, policy.Allowed},
		{"Read", `{"file_path":"/workspace/.claude/settings.json"}`, false, policy.Allowed},
		{"LS", `{"path":"~"}`, true, policy.Allowed},
		// A scope leaves the directory out of a search from above; an agent's own program searches without one.
		{"Grep", `{"pattern":"x","path":"~"}`, false, policy.Allowed},
		{"Grep", `{"pattern":"x","path":"~"}`, true, policy.Denied},
		{"Glob", `{"pattern":"/**"}`, true, policy.Denied},
		{"Glob", `{"pattern":"~/**"}`, true, policy.Denied},
		{"Glob", `{"pattern":"**/*.go"}`, true, policy.Allowed},
		{"Glob", `{"pattern":"src/*.go"}`, true, policy.Allowed},
		{"Bash", `{"command":"ls ~/.claude"}`, true, policy.Allowed},
	} {
		for name, e := range map[string]*policy.Engine{"the server's": e, "with a layer": child} {
			d, trace, err := e.Explain(t.Context(), policy.Request{
				Mode: holdfast.ModeBypassPermissions, Tool: c.tool, Input: json.RawMessage(c.input), Unscoped: c.unscoped, Sandboxed: true,
			})
			if err != nil || d.Verdict != c.want {
				t.Errorf("%s: %s %s (unscoped %v) is %v, want %v: %v\n%s", name, c.tool, c.input, c.unscoped, d.Verdict, c.want, err, trace)
			}
			if c.want == policy.Denied && (d.By != "agent directories" || !strings.Contains(d.Reason, "~/.")) {
				t.Errorf("%s %s is denied by %s: %s", c.tool, c.input, d.By, d.Reason)
			}
		}
	}
	dirs := []string{".claude", ".local/share/opencode"}
	for _, tool := range []string{"Read", "Write", "Grep", "Glob", "LS", "NotebookEdit"} {
		if got, err := e.Scope(t.Context(), policy.Request{Tool: tool}); err != nil || !reflect.DeepEqual(got.Agents, dirs) {
			t.Errorf("the scope of %s keeps it from %q (%v), want %q", tool, got.Agents, err, dirs)
		}
	}
	if w := e.Walls(policy.Home, policy.Cwd); !w.Empty() {
		t.Errorf("the box has walls, so that the agent cannot use its directory: %+v", w)
	}
	for _, bad := range []string{"", ".", "..", "../x", "/etc", ".claude/", "a/../b"} {
		if _, err := policy.New(policy.Config{AgentDirs: []policy.AgentDir{{Path: bad}}}); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("the agent directory %q: %v", bad, err)
		}
	}
}
