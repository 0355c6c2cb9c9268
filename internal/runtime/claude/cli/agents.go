package cli

import (
	"encoding/json"
	"strings"
	"unicode"

	"github.com/holdfast-run/holdfast/internal/folder"
)

// Agents returns the sub-agents of a folder as the CLI takes them. They get no tool that the
// CLI is not offered; one that would be left without any is left out.
func Agents(f *folder.Folder) map[string]any {
	if f == nil {
		return nil
	}
	out := map[string]any{}
	for i := range f.Agents {
		a := &f.Agents[i]
		def := map[string]any{"description": a.Description, "prompt": a.Prompt}
		if a.Tools != nil {
			tools := offered(a.Tools)
			if len(tools) == 0 {
				continue
			}
			def["tools"] = tools
		}
		if without := offered(a.Without); len(without) > 0 {
			def["disallowedTools"] = without
		}
		out[a.Name] = def
	}
	return out
}

// Named returns the input of a tool use as it is decided upon and run: a skill of the agent
// goes by its full name, whatever the model calls it, and before one of the CLI.
func Named(f *folder.Folder, tool string, input json.RawMessage) json.RawMessage {
	var in map[string]json.RawMessage
	var name string
	if tool != "Skill" || json.Unmarshal(input, &in) != nil || json.Unmarshal(in["skill"], &name) != nil {
		return input
	}
	full := strings.TrimFunc(name, func(c rune) bool { return c == '/' || c == '\ufeff' || unicode.IsSpace(c) })
	if f.Skill(full) != nil {
		full = folder.PluginName + ":" + full
	}
	if full == name {
		return input
	}
	var err error
	if in["skill"], err = json.Marshal(full); err != nil {
		return input // it is a text
	}
	out, err := json.Marshal(in)
	if err != nil {
		return input // it was read from JSON
	}
	return out
}
