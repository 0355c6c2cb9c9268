package cli

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/policy"
)

// standard are the CLI's tools that policy knows by their standard registration; own are further tools of the
// CLI, each with its registration. The lists leave out tools that wake an agent by themselves, reach other
// sessions or ask over a screen.
var (
	standard = []string{"Bash", "Edit", "Glob", "Grep", "Read", "Task", "TodoWrite", "WebFetch", "Write"}
	own      = []policy.Tool{
		{Name: "NotebookEdit", Class: policy.ClassEdits, Subject: policy.SubjectPath, Field: "notebook_path"},
		// A skill of the CLI may run git and sub-agents at once, without a permission for Bash.
		{Name: "Skill", Class: policy.ClassRuns, Subject: policy.SubjectName, Field: "skill"},
	}
)

// Offered returns the tools of the CLI that agents may use. The CLI is started with only these,
// so that it has no tool that policy does not know.
func Offered() []policy.Tool {
	out := slices.Clone(own)
	for _, t := range policy.StandardTools() {
		if slices.Contains(standard, t.Name) {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b policy.Tool) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// ChangesNothing reports whether a tool changes neither files nor anything else.
func ChangesNothing(name string) bool {
	return slices.ContainsFunc(Offered(), func(t policy.Tool) bool {
		return t.Name == name && (t.Class == policy.ClassReads || t.Class == policy.ClassPlans)
	})
}

// Edited returns the path of the file that a call of an offered tool edits, or "".
func Edited(name string, input json.RawMessage) string {
	i := slices.IndexFunc(Offered(), func(t policy.Tool) bool { return t.Name == name && t.Class == policy.ClassEdits })
	var in map[string]json.RawMessage
	var file string
	if i < 0 || json.Unmarshal(input, &in) != nil || json.Unmarshal(in[Offered()[i].Field], &file) != nil {
		return ""
	}
	return file
}

// offered returns those of the named tools that the CLI is started with.
func offered(names []string) []string {
	var out []string
	for _, t := range Offered() {
		if slices.Contains(names, t.Name) || t.Name == "Task" && slices.Contains(names, "Agent") {
			out = append(out, t.Name)
		}
	}
	return out
}
