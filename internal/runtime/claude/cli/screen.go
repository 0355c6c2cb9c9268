package cli

import (
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/folder"
)

// works are the CLI's commands that a message may name: they change nothing that the server
// stores, and run no command by themselves.
var works = []string{"compact", "context", "cost", "effort", "init", "stats", "usage"}

// inWords is the hint for a message that names a skill of the CLI, which is refused. The CLI runs the
// commands of a skill named in a message at once, but asks for a decision if the agent chooses the skill.
const inWords = "ask for it in words, as: use the skill %s"

// instead holds, for each command of the CLI that Holdfast replaces, a hint what to use instead.
var instead = map[string]string{
	"model":       "holdfast session update ID --model anthropic/NAME",
	"plan":        "holdfast session update ID --mode plan",
	"permissions": "holdfast session update ID --mode MODE; rules: holdfast policy explain --session ID",
	"clear":       "holdfast session create", "new": "holdfast session create", "reset": "holdfast session create",
	"resume": "holdfast session list", "continue": "holdfast session list", "exit": "holdfast session end ID", "quit": "holdfast session end ID",
	"rename": "holdfast session rename ID TITLE", "status": "holdfast session show ID", "export": "holdfast session transcript ID",
	"output-style": "set outputStyle in .claude/settings.json of the agent's folder, and deploy it",
	"agents":       "write .claude/agents/NAME.md in the agent's folder, and deploy it",
	"skills":       "write .claude/skills/NAME/SKILL.md in the agent's folder, and deploy it",
	"memory":       "write CLAUDE.md in the agent's folder, and deploy it",
	"hooks":        "write hooks into holdfast.yaml of the agent's folder, and deploy it",
	"login":        "the server has the model's key: see anthropic.key_file", "logout": "the server has the model's key: see anthropic.key_file",
	"help": "holdfast send --help",
}

// bundled are the skills that come with the CLI.
var bundled = strings.Fields(`batch claude-api code-review dataviz debug deep-research doctor fewer-permission-prompts loop
	plugin-authoring run run-skill-generator security-review simplify team-onboarding update-config verify
	workflow-authoring`)

// screenOnly are commands of the CLI, and aliases of them, that have no use in a session.
var screenOnly = strings.Fields(`__remote-workflow add-dir advisor allowed-tools android app artifacts auto-mode-setup autocompact autofix-pr
	background bashes bg branch break-reminder breaks brief btw bug cd checkpoint checkup cloud-plugins color
	config copy daemon design-consent design-login design-revoke desktop diff downtime extra-usage fast feedback
	focus fork goal heapdump ide insights install-github-app install-slack-app ios keybindings list-agents
	marketplace mcp memory-pause mobile name passes pause-memory peers plugin plugins powerup privacy-settings
	pro-trial-expired project radio rate-limit-options rc recap release-notes reload-plugins reload-skills
	remote remote-control remote-env restart rewind sandbox scroll-speed session settings setup-bedrock
	setup-vertex share skill-doctor statusline stickers stop subtask tasks teleport terminal-setup theme todos
	toggle-memory tui ultraplan ultrareview undo update upgrade usage-credits use-case version vim voice
	web-setup wellbeing workflow-launch-exec workflows`)

// Screen refuses a message that names a command of the CLI which does not work in a session,
// with a hint what to do instead. It accepts commands and skills of the agent's folder, commands
// that work, and all other text.
func Screen(text string, f *folder.Folder) error {
	name, _, ok := folder.Slash(text)
	if !ok || f.Names(text) || slices.Contains(works, name) {
		return nil
	}
	hint, known := instead[name]
	switch {
	case known:
	case slices.Contains(bundled, name):
		hint = strings.ReplaceAll(inWords, "%s", name)
	case slices.Contains(screenOnly, name):
		hint = "leave it out: it is about the CLI's own screen and settings, which are off"
	default:
		return nil
	}
	return holdfast.Errorf(holdfast.KindInvalid, "claude", "the command /%s of the Claude Code CLI does not work in a session", name).WithHint("%s", hint)
}
