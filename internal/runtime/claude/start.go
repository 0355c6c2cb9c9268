package claude

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Where an agent finds its things in a box. They are the same on every driver and
// machine, because a transcript names them.
const (
	boxHome     = "/home/agent"
	boxConfig   = boxHome + "/.claude"
	modelSocket = "/run/holdfast/model.sock"
	// transcripts is where the CLI keeps those of /workspace.
	transcripts = boxConfig + "/projects/-workspace"
)

// facts are what the start of an agent is planned from. Gathering them changes
// nothing.
type facts struct {
	session holdfast.Session
	turn    holdfast.TurnID
	box     *sandbox.Box
	// states are the session's agents of all runtimes; current is this runtime's.
	states  []holdfast.AgentState
	current *holdfast.AgentState
	// completed is how many turns of the session have completed, newest the newest
	// log entry before this turn's message.
	completed, newest int64
	// refused says why the CLI did not go on from what it was given, in this start.
	refused string
	// found is what is known of the transcript that current left.
	found transcriptFacts
}

// plan says how an agent is started. The zero plan is illegal.
type plan struct {
	tier holdfast.Tier
	// state is the agent that will run; its generation is new or current's.
	state holdfast.AgentState
	// changed are other states that change with the start, drafts what is recorded
	// of that; both are committed before the agent is started.
	changed []holdfast.AgentState
	drafts  []journal.Draft
	// resume is the transcript to resume, an absolute path in the box; without one
	// the agent begins anew under state.AgentID.
	resume string
	// aside are files of the box that are moved, rewrite has the transcripts written anew.
	aside   []wire.RenameRequest
	rewrite bool
	// preface goes in front of the first prompt that the agent gets.
	preface string
	// turns of the completed ones are loaded; truncated and reason are for the receipt.
	turns     int64
	truncated bool
	reason    string
}

// gather looks at what there is, beside what the facts hold.
func (r *Runtime) gather(ctx context.Context, host runtime.Host, f facts) (facts, error) {
	f.current = currentOf(f.states)
	err := host.Conversation(ctx, func(c *conversation.Conversation) error {
		f.completed = c.Completed
		if f.turn != "" && f.turn == c.Turn.ID {
			f.newest = c.Turn.Message - 1
		}
		for i := len(c.Items) - 1; i >= 0 && f.turn == "" && f.newest == 0; i-- {
			if e, ok := c.Items[i].(*conversation.Ended); ok {
				f.newest = e.Seq
			}
		}
		return nil
	})
	if err != nil {
		return f, err
	}
	f.found, err = r.inspect(ctx, host, f)
	return f, err
}

// currentOf is the state of this runtime that the next turn goes on with.
func currentOf(states []holdfast.AgentState) *holdfast.AgentState {
	i := slices.IndexFunc(states, func(s holdfast.AgentState) bool {
		return s.Runtime == Name && s.Health == holdfast.HealthCurrent
	})
	if i < 0 {
		return nil
	}
	return &states[i]
}

// planStart decides how to start, out of the facts alone.
func planStart(f facts, newID string) plan {
	if f.current == nil {
		return planTold(f, newID, "the session has no agent of this runtime yet")
	}
	return planRestore(f, newID)
}

// nextState is the state of an agent that is made now.
func nextState(f facts, newID string) holdfast.AgentState {
	return holdfast.AgentState{
		Generation: int64(len(f.states)) + 1, Runtime: Name, AgentID: newID, Health: holdfast.HealthCurrent,
	}
}

// execute makes the box ready for a plan that is in the log, so that starting the
// agent is all that is left to do.
func (r *Runtime) execute(ctx context.Context, host runtime.Host, f facts, p *plan) error {
	if err := r.restore(ctx, host, f, p); err != nil {
		return err
	}
	return f.box.Listen(ctx, wire.ListenRequest{Name: "model", Network: "unix", Address: modelSocket})
}

// receipt says what an agent that was started knows (I-31).
func (p *plan) receipt(f facts, version string) holdfast.AgentStarted {
	return holdfast.AgentStarted{
		Generation: p.state.Generation, Runtime: Name, AgentID: p.state.AgentID, Version: version, Tier: p.tier,
		Turns: p.turns, Of: f.completed, Truncated: p.truncated, Reason: p.reason, Call: p.state.Call, Box: p.state.Box,
	}
}

// command is the CLI's command line. It holds nothing that is secret, and no text
// of a user or an agent: those go over stdin.
// Brought is what x.brought gives.
func (r *Runtime) command(p *plan, prog Program, model string, brought []string) wire.ExecRequest {
	var tools []string
	for _, t := range Offered() {
		tools = append(tools, t.Name)
	}
	argv := append(slices.Clone(prog.Argv),
		"-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose",
		"--include-partial-messages", "--permission-prompt-tool", "stdio", "--session-mirror", "--setting-sources=",
		"--tools="+strings.Join(tools, ","), "--model="+model,
	)
	argv = append(argv, brought...)
	if p.resume != "" {
		argv = append(argv, "--resume", p.resume)
	} else {
		argv = append(argv, "--session-id", p.state.AgentID)
	}
	return wire.ExecRequest{Argv: argv, Env: append(slices.Clone(prog.Env), r.environ()...), Stdin: true, Lines: true}
}

// environ is what the CLI gets beside the box's environment: one key that is none,
// and the model's socket as its only way out.
func (r *Runtime) environ() []string {
	return []string{
		"CLAUDE_CONFIG_DIR=" + boxConfig,
		"ANTHROPIC_UNIX_SOCKET=" + modelSocket, "ANTHROPIC_BASE_URL=http://localhost", "ANTHROPIC_API_KEY=held-by-the-server",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1",
		"CLAUDE_CODE_EAGER_FLUSH=1", "CLAUDE_CODE_STARTUP_FAILURE_RESULTS=1",
		"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1",
		// The CLI reads a file that a text names as @FILE without asking; now the model reads it.
		"CLAUDE_CODE_DISABLE_FILE_MENTIONS=1",
		fmt.Sprintf("CLAUDE_CODE_MAX_RETRIES=%d", r.cfg.Retries),
	}
}
