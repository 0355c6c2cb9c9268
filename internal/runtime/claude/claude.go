package claude

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/transcript"
	"github.com/holdfast-run/holdfast/policy"
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

// standard are the CLI's tools whose registration is the standard one; own are the
// others, with their registration. Tools that wake an agent by themselves, reach other
// sessions or ask over a screen are left out.
var (
	standard = []string{"Bash", "Edit", "Glob", "Grep", "Read", "Task", "TodoWrite", "WebFetch", "Write"}
	own      = []policy.Tool{
		{Name: "NotebookEdit", Class: policy.ClassEdits, Subject: policy.SubjectPath, Field: "notebook_path"},
		// A skill of the CLI may run git and sub-agents at once, without asking for Bash.
		{Name: "Skill", Class: policy.ClassRuns, Subject: policy.SubjectName, Field: "skill"},
	}
)

// Offered lists the tools of the CLI that agents have. The CLI is started with these
// alone, so that it offers no tool that policy does not know.
func Offered() []policy.Tool {
	out := slices.Clone(own)
	for _, t := range policy.StandardTools() {
		if slices.Contains(standard, t.Name) {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b policy.Tool) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// TranscriptPath implements runtime.Transcriber.
func (r *Runtime) TranscriptPath(agentID string) string {
	return transcript.Path(transcripts, agentID, transcript.Main)
}

// changesNothing reports whether an offered tool leaves files and the world alone.
func changesNothing(name string) bool {
	return slices.ContainsFunc(Offered(), func(t policy.Tool) bool {
		return t.Name == name && (t.Class == policy.ClassReads || t.Class == policy.ClassPlans)
	})
}

// edited returns the file that a call of an offered tool edits; empty for none.
func edited(name string, input json.RawMessage) string {
	i := slices.IndexFunc(Offered(), func(t policy.Tool) bool { return t.Name == name && t.Class == policy.ClassEdits })
	var in map[string]json.RawMessage
	var file string
	if i < 0 || !decode(input, &in) || !decode(in[Offered()[i].Field], &file) {
		return ""
	}
	return file
}

// Runtime implements runtime.Runtime. Make one with New.
type Runtime struct {
	cfg Config
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
	return &Runtime{cfg: cfg}, nil
}

// Name implements runtime.Runtime.
func (r *Runtime) Name() string { return Name }

// Resident implements runtime.Resident.
func (r *Runtime) Resident() {}
