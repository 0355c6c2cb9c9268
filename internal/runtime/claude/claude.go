package claude

import (
	"io"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/cli"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/transcript"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// Name is the runtime's name in sessions and agents.
const Name = "claude"

const op = "claude"

// Version is the release of the CLI that this runtime is made for.
const Version = "2.1.329"

// Program is a CLI that can be started.
type Program struct {
	Argv    []string
	Env     []string
	Version string
}

// Config configures a Runtime. Program, Now and Rand are required.
type Config struct {
	// Program gives the CLI as boxes see it: how to start it, and its release. Its
	// error says how to get one.
	Program func() (Program, error)
	// Version is the release that has to answer; empty is the one this runtime is
	// made for.
	Version string
	// Host are tools that run in the server.
	Host []tool.Tool
	// Retries is how often the CLI tries a failed model call again.
	Retries int
	// Limits tells what the model's provider last answered to a session's box; nil is
	// nothing: no turn is parked.
	Limits runtime.Limits
	// NoPark fails a turn whose provider asks for a long wait, instead of letting it
	// wait; LongestPark is the longest wait it takes (default 24 h).
	NoPark      bool
	LongestPark time.Duration
	Now         func() time.Time
	Rand        io.Reader
}

// TranscriptPath implements runtime.Transcriber.
func (r *Runtime) TranscriptPath(agentID string) string {
	return transcript.Path(cli.Transcripts, agentID, transcript.Main)
}

// Runtime implements runtime.Runtime. Make one with New.
type Runtime struct {
	cfg Config
	run resident.Config
}

// New makes the runtime. A missing part is invalid; a missing CLI is not: sessions
// say so when they are used.
func New(cfg Config) (*Runtime, error) {
	if cfg.Program == nil || cfg.Now == nil || cfg.Rand == nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "Program, Now and Rand are required")
	}
	if cfg.Version == "" {
		cfg.Version = Version
	}
	if cfg.Retries <= 0 {
		cfg.Retries = 4
	}
	if cfg.LongestPark <= 0 {
		cfg.LongestPark = 24 * time.Hour
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

// Resident implements runtime.Resident.
func (r *Runtime) Resident() {}
