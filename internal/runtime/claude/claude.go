package claude

import (
	"io"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/cli"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/transcript"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
	"github.com/holdfast-run/holdfast/policy"
)

// Name is the runtime's name in sessions and agents.
const Name = "claude"

const op = "claude"

// Dir returns the directory in which the CLI keeps its configuration and its conversations.
func Dir() policy.AgentDir {
	return policy.AgentDir{Path: strings.TrimPrefix(cli.Config(policy.Home), policy.Home+"/"), Results: "projects/*/*/tool-results/**"}
}

// Version is the release of the CLI that this runtime is made for.
const Version = "2.1.329"

// Program is an installed CLI, with the command line that starts it.
type Program struct {
	Argv    []string
	Env     []string
	Version string
}

// Config configures a Runtime. Program, Now and Rand are required.
type Config struct {
	// Program returns the CLI as the tools of sessions with a trust level see it: how to start it, and its
	// release. The error of Program says how to install the CLI.
	Program func(trust holdfast.Trust) (Program, error)
	// Host are the tools of the server that the CLI may call; they run in the server.
	Host []tool.Tool
	// Limits returns the newest rate limit of the model's provider for a session; if it is nil, no turn is parked.
	Limits runtime.Limits
	// NoPark makes a turn fail if its provider asks for a long wait, instead of parking it.
	NoPark bool
	Now    func() time.Time
	Rand   io.Reader
}

// TranscriptPath implements runtime.Transcriber.
func (r *Runtime) TranscriptPath(at runtime.Place, agentID string) string {
	return transcript.Path(cli.Transcripts(at.Home, at.Workspace), agentID, transcript.Main)
}

// Runtime implements runtime.Runtime. Make one with New.
type Runtime struct {
	cfg Config
	run resident.Config
}

// New makes the runtime. It returns KindInvalid if a required field of cfg is missing. It does not fail if
// the CLI is not installed: the sessions that use the runtime report that.
func New(cfg Config) (*Runtime, error) {
	if cfg.Program == nil || cfg.Now == nil || cfg.Rand == nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "Program, Now and Rand of the claude runtime's Config are required")
	}
	return &Runtime{cfg: cfg, run: resident.Config{
		Runtime: Name, Op: op, Agent: "the agent", Hint: "holdfast runtime install claude", Now: cfg.Now,
		Handshake: handshakeTime, Grace: haltTime, MostLine: mostLine,
	}}, nil
}

// Screen implements runtime.Screener.
func (r *Runtime) Screen(text string, f *folder.Folder) error { return cli.Screen(text, f) }

// Name implements runtime.Runtime.
func (r *Runtime) Name() string { return Name }
