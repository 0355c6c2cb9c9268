package cli

import (
	"fmt"
	"strings"
)

// Where an agent finds its things in a box. They are the same on every driver and
// machine, because a transcript names them.
const (
	// Config is the CLI's own directory, Transcripts that of the transcripts of /workspace.
	Config      = "/home/agent/.claude"
	Transcripts = Config + "/projects/-workspace"
	// ModelSocket is the CLI's only way out.
	ModelSocket = "/run/holdfast/model.sock"
)

// Options returns the CLI's options. They hold nothing that is secret, and no text of a
// user or an agent: those go over stdin. Resume is the transcript to resume, a path in the
// box; without one the CLI begins a session under an id.
func Options(model, resume, id string) []string {
	var tools []string
	for _, t := range Offered() {
		tools = append(tools, t.Name)
	}
	argv := []string{
		"-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose",
		"--include-partial-messages", "--permission-prompt-tool", "stdio", "--session-mirror", "--setting-sources=",
		"--tools=" + strings.Join(tools, ","), "--model=" + model,
	}
	if resume != "" {
		return append(argv, "--resume", resume)
	}
	return append(argv, "--session-id", id)
}

// Environ returns what the CLI gets in addition to the box's environment: a key that is none,
// and the model's socket as its only way out. It tries a failed model call again so often.
func Environ(retries int) []string {
	return []string{
		"CLAUDE_CONFIG_DIR=" + Config,
		"ANTHROPIC_UNIX_SOCKET=" + ModelSocket, "ANTHROPIC_BASE_URL=http://localhost", "ANTHROPIC_API_KEY=held-by-the-server",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1",
		"CLAUDE_CODE_EAGER_FLUSH=1", "CLAUDE_CODE_STARTUP_FAILURE_RESULTS=1",
		"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1",
		// The CLI reads a file that a text names as @FILE without asking; now the model reads it.
		"CLAUDE_CODE_DISABLE_FILE_MENTIONS=1",
		fmt.Sprintf("CLAUDE_CODE_MAX_RETRIES=%d", retries),
	}
}
