package cli

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Config returns the CLI's own directory in a home directory.
func Config(home string) string { return home + "/.claude" }

// Transcripts returns the directory in which the CLI stores the transcripts of a workspace. For a very long
// path the CLI may use another name: then its transcripts are not found, and are restored from the log.
func Transcripts(home, workspace string) string {
	return Config(home) + "/projects/" + strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '-'
	}, workspace)
}

// ModelSocket returns the socket to the model's API in a directory for sockets. In a box it is the CLI's only
// connection to the outside.
func ModelSocket(dir string) string { return dir + "/model.sock" }

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

// Environ returns the variables for the CLI in addition to the box's environment: a placeholder key,
// the model's socket, which in a box is its only connection, and settings that switch features off.
func Environ(home, sockets string) []string {
	return []string{
		"CLAUDE_CONFIG_DIR=" + Config(home),
		"ANTHROPIC_UNIX_SOCKET=" + ModelSocket(sockets), "ANTHROPIC_BASE_URL=http://localhost", "ANTHROPIC_API_KEY=held-by-the-server",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1",
		"CLAUDE_CODE_EAGER_FLUSH=1", "CLAUDE_CODE_STARTUP_FAILURE_RESULTS=1",
		"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1",
		// Otherwise the CLI would read a file that a message names as @FILE without a permission; now
		// the model has to read it.
		"CLAUDE_CODE_DISABLE_FILE_MENTIONS=1",
		"CLAUDE_CODE_MAX_RETRIES=4",
	}
}
