package cli

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/policy"
)

// standard are the CLI's tools whose registration is the standard one; own are the
// others, with their registration. Tools that wake an agent by themselves, reach other
// sessions or ask over a screen are left out.
var (
	standard = []string{"Bash", "Edit", "Glob", "Grep", "Read", "Task", "TodoWrite", "WebFetch", "Write"}
	own      = []policy.Tool{
		{Name: "NotebookEdit", Class: policy.ClassEdits, Subject: policy.SubjectPath, Field: "notebook_path"},
		// A skill of the CLI may run git and sub-agents at once, without asking for Bash.
		{Name: "Skill", Class: policy.ClassRuns, Subject: policy.SubjectName, Field: "skill"},
	}
)

// Offered lists the tools of the CLI that agents have. The CLI is started with these
// alone, so that it offers no tool that policy does not know.
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

// ChangesNothing reports whether an offered tool leaves files and the world alone.
func ChangesNothing(name string) bool {
	return slices.ContainsFunc(Offered(), func(t policy.Tool) bool {
		return t.Name == name && (t.Class == policy.ClassReads || t.Class == policy.ClassPlans)
	})
}

// Edited returns the file that a call of an offered tool edits; empty for none.
func Edited(name string, input json.RawMessage) string {
	i := slices.IndexFunc(Offered(), func(t policy.Tool) bool { return t.Name == name && t.Class == policy.ClassEdits })
	var in map[string]json.RawMessage
	var file string
	if i < 0 || json.Unmarshal(input, &in) != nil || json.Unmarshal(in[Offered()[i].Field], &file) != nil {
		return ""
	}
	return file
}

// offered are those of some tools that the CLI is started with.
func offered(names []string) []string {
	var out []string
	for _, t := range Offered() {
		if slices.Contains(names, t.Name) || t.Name == "Task" && slices.Contains(names, "Agent") {
			out = append(out, t.Name)
		}
	}
	return out
}
