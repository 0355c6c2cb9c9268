package claude

import (
	"context"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// noticeFolder is the code of the notice that lists which parts of the agent's folder are ignored.
const noticeFolder = "agent.folder"

// brought returns the command-line options by which the CLI loads the skills, commands and output styles of
// the agent's version, from a directory that nothing in the box can write. They also keep the CLI from
// running shell commands in these files. The CLI's own settings stay off. first is true for a session's first
// agent, which records in a notice what was left out of the folder.
func brought(ctx context.Context, turn *resident.Run, dir string, f *folder.Folder, first bool) ([]string, error) {
	set := object{"disableSkillShellExecution": true}
	if f == nil {
		return settingsOption(set), nil
	}
	var out []string
	shown := len(f.Plugin) > 0
	if shown {
		_, err := turn.Box.Stat(ctx, wire.PathRequest{Path: dir + "/.claude-plugin/plugin.json"})
		switch {
		case holdfast.IsKind(err, holdfast.KindNotFound):
			// The box was started by an older server, or for another runtime, and so lacks the directory of the plugin.
			shown = false
			turn.Recorder.Notice(noticeFolder, "the agent's skills and commands are missing in this sandbox: they appear when it starts again")
		case err != nil:
			return nil, err
		default:
			out = append(out, "--plugin-dir", dir)
		}
	}
	switch {
	case f.Chosen() != nil && shown:
		set["outputStyle"] = folder.PluginName + ":" + f.Style
	case f.Chosen() == nil && f.Style != "":
		set["outputStyle"] = f.Style
	}
	if len(f.Notices) > 0 && first {
		turn.Recorder.Notice(noticeFolder, "of the agent's .claude folder: "+clip.Counted(strings.Join(f.Notices, "; "), mostUnknown))
	}
	return append(out, settingsOption(set)...), nil
}

func settingsOption(set object) []string {
	return []string{"--settings=" + strings.TrimSpace(string(encode(set)))}
}
