package cli

import (
	"encoding/json"
	"strings"
	"unicode"

	"github.com/holdfast-run/holdfast/internal/folder"
)

// Agents returns the sub-agents of a folder in the CLI's format. Their tools are limited to
// those of Offered; a sub-agent that lists tools but has none left is omitted.
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

// Named returns the input of a tool use as it is decided on and run: a skill of the agent's folder gets
// its full name, whatever form the model used, and has precedence over a skill of the CLI.
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
		return input // a string cannot fail to encode
	}
	out, err := json.Marshal(in)
	if err != nil {
		return input // decoded from JSON, so it cannot fail to encode
	}
	return out
}
