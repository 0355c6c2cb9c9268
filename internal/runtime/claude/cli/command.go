package cli

import (
	"strings"
)

// The paths of the CLI's files in a box. They are the same on every driver and machine, because
// transcripts contain them.
const (
	// Config is the CLI's own directory, Transcripts the directory of the transcripts of /workspace.
	Config      = "/home/agent/.claude"
	Transcripts = Config + "/projects/-workspace"
	// ModelSocket is the socket to the model's API, the CLI's only connection out of the box.
	ModelSocket = "/run/holdfast/model.sock"
)

// Options returns the CLI's command-line options. They contain no secrets and no text of a user
// or an agent: those go over stdin. resume is the path in the box of the transcript to resume;
// if it is empty, the CLI begins a session with the id.
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

// Environ returns the variables for the CLI in addition to the box's environment: a placeholder key, and
// the model's socket as its only connection.
func Environ() []string {
	return []string{
		"CLAUDE_CONFIG_DIR=" + Config,
		"ANTHROPIC_UNIX_SOCKET=" + ModelSocket, "ANTHROPIC_BASE_URL=http://localhost", "ANTHROPIC_API_KEY=held-by-the-server",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1",
		"CLAUDE_CODE_EAGER_FLUSH=1", "CLAUDE_CODE_STARTUP_FAILURE_RESULTS=1",
		"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1",
		// Otherwise the CLI would read a file that a message names as @FILE without a permission; now
		// the model has to read it.
		"CLAUDE_CODE_DISABLE_FILE_MENTIONS=1",
		"CLAUDE_CODE_MAX_RETRIES=4",
	}
}
