package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/folder"
)

// TestScreen: each of the CLI's commands either works or is refused with what to do instead;
// the agent's own and plain text are taken.
func TestScreen(t *testing.T) {
	f := &folder.Folder{Skills: []folder.Skill{{Name: "hello"}, {Name: "verify"}}}
	for _, text := range []string{"hi", "/compact now", "/context", "/usage", "/hello x", "/agent:hello x", "/agent:verify", "/verify x", "/nosuch", "/etc/passwd is gone", " /model x", "/model: x", "/Model x", "", "/"} {
		if err := Screen(text, f); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for text, hint := range map[string]string{
		"/model": "--model", "/model x": "--model", "/model\tx": "--model", "/model\u00a0x": "--model", "/model\ufeffx": "--model", "/agent:model": "--model",
		"/plan": "--mode plan", "/clear": "session create", "/security-review": "use the skill security-review", "/heapdump": "leave it out", "/workflow-launch-exec": "leave it out",
	} {
		for _, f := range []*folder.Folder{f, nil} {
			err, want := Screen(text, f), hint
			if !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(holdfast.HintOf(err), want) {
				t.Errorf("%q: %v, hint %q, want %q", text, err, holdfast.HintOf(err), want)
			}
		}
	}
	if err := Screen("/verify", nil); !strings.Contains(holdfast.HintOf(err), "use the skill verify") {
		t.Errorf("the CLI's own /verify: %v", err)
	}
	seen := map[string]bool{}
	for _, name := range slices.Concat(works, bundled, screenOnly) {
		if _, twice := instead[name]; seen[name] || twice {
			t.Errorf("/%s is there twice", name)
		}
		seen[name] = true
	}
}

// TestSkillsGoByTheirNames: a skill is decided upon under one name, whatever the model calls
// it: the CLI takes several.
func TestSkillsGoByTheirNames(t *testing.T) {
	f := &folder.Folder{Skills: []folder.Skill{{Name: "hello"}, {Name: "verify"}}}
	for name, want := range map[string]string{
		"hello": "agent:hello", "/hello": "agent:hello", " hello\t": "agent:hello", "\ufeff/hello": "agent:hello", "agent:hello": "agent:hello", "/agent:hello": "agent:hello",
		"verify": "agent:verify", "agent:verify": "agent:verify", " /security-review": "security-review", "nosuch": "nosuch",
	} {
		input := marshal(t, map[string]any{"skill": name, "args": "x"})
		var got struct{ Skill, Args string }
		if json.Unmarshal(Named(f, "Skill", input), &got) != nil || got.Skill != want || got.Args != "x" {
			t.Errorf("%q is decided as %+v, want %q", name, got, want)
		}
		if other := Named(f, "Bash", input); string(other) != string(input) {
			t.Errorf("the input of Bash became %s", other)
		}
	}
}

// TestSubAgents: a sub-agent has the tools that its file names and the CLI is offered; one
// that would be left without any is left out.
func TestSubAgents(t *testing.T) {
	got := string(marshal(t, Agents(&folder.Folder{Agents: []folder.Agent{
		{Name: "all", Description: "d", Prompt: "p"},
		{Name: "some", Description: "d", Prompt: "p", Tools: []string{"Bash", "Bash(git *)", "KillShell", "Agent"}, Without: []string{"Read", "Nope"}},
		{Name: "none", Description: "d", Prompt: "p", Tools: []string{"CronCreate"}},
	}})))
	const want = `{"all":{"description":"d","prompt":"p"},"some":{"description":"d","disallowedTools":["Read"],"prompt":"p","tools":["Bash","Task"]}}`
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestWSP19_NoToolAsksQuestions: an agent is offered no tool that asks a person something, not by its own name and not for a
// sub-agent that names it: the CLI starts with a list of tools, and that has none (WS-P19).
func TestWSP19_NoToolAsksQuestions(t *testing.T) {
	const asks = "AskUserQuestion"
	for _, tool := range Offered() {
		if tool.Name == asks || strings.Contains(strings.ToLower(tool.Name), "question") {
			t.Errorf("the CLI has %s", tool.Name)
		}
	}
	if got := offered([]string{"Bash", asks}); !slices.Equal(got, []string{"Bash"}) {
		t.Errorf("a sub-agent has %v", got)
	}
	argv := Options("claude-x", "", "id")
	i := slices.IndexFunc(argv, func(arg string) bool { return strings.HasPrefix(arg, "--tools=") })
	if i < 0 || strings.Contains(argv[i], asks) || !strings.Contains(argv[i], "Bash") {
		t.Errorf("the CLI is started with %q", argv)
	}
}
