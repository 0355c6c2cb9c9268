package claude

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// noticeFolder is the notice that says what of the agent's folder was left out.
const noticeFolder = "agent.folder"

// brought are the options that give the CLI the skills, commands and output styles of the
// agent's version, from the directory that the box shows and nobody in it can write, and
// that keep it from running commands that stand in them. The CLI's own settings stay off.
func (x *run) brought(ctx context.Context) ([]string, error) {
	set := object{"disableSkillShellExecution": true}
	f := x.t.Folder
	if f == nil {
		return settingsOption(set), nil
	}
	var out []string
	shown := len(f.Plugin) > 0
	if shown {
		_, err := x.box.Stat(ctx, wire.PathRequest{Path: sandbox.AgentDir + "/.claude-plugin/plugin.json"})
		switch {
		case holdfast.IsKind(err, holdfast.KindNotFound):
			// A box of an older server, or that ran for another runtime.
			shown = false
			x.notice(noticeFolder, "the sandbox does not show the agent's skills and commands: they are there when it starts again")
		case err != nil:
			return nil, err
		default:
			out = append(out, "--plugin-dir", sandbox.AgentDir)
		}
	}
	switch {
	case f.Chosen() != nil && shown:
		set["outputStyle"] = folder.PluginName + ":" + f.Style
	case f.Chosen() == nil && f.Style != "":
		set["outputStyle"] = f.Style
	}
	if len(f.Notices) > 0 && len(x.facts.states) == 0 {
		x.notice(noticeFolder, "of the agent's .claude folder: "+clip(strings.Join(f.Notices, "; "), mostUnknown))
	}
	return append(out, settingsOption(set)...), nil
}

func settingsOption(set object) []string {
	return []string{"--settings=" + strings.TrimSpace(string(encode(set)))}
}

// named is the input of a use as it is decided upon and run: a skill of the agent goes by its
// full name, whatever the model calls it, and before one of the CLI.
func (x *run) named(u *use) json.RawMessage {
	var in map[string]json.RawMessage
	var name string
	if u.name != "Skill" || !decode(u.input, &in) || !decode(in["skill"], &name) {
		return u.input
	}
	full := strings.TrimFunc(name, func(c rune) bool { return c == '/' || c == '\ufeff' || unicode.IsSpace(c) })
	if x.t.Folder.Skill(full) != nil {
		full = folder.PluginName + ":" + full
	}
	if full == name {
		return u.input
	}
	in["skill"] = bytesOf(full)
	return bytesOf(in)
}

// handshake is the first line that a CLI gets.
func (x *run) handshake() []byte {
	return handshake(x.t.Instructions, agents(x.t.Folder), len(x.r.cfg.Host) > 0)
}

// agents are the sub-agents of a folder as the CLI takes them. They get no tool that the
// CLI is not offered; one that would be left without any is left out.
func agents(f *folder.Folder) object {
	if f == nil {
		return nil
	}
	out := object{}
	for i := range f.Agents {
		a := &f.Agents[i]
		def := object{"description": a.Description, "prompt": a.Prompt}
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
