// Package runtime is the contract between the engine and the ways an agent can
// run: one turn goes in, events come out through the Host, a Result ends it.
//
// The engine calls it, the packages below it (native, later claude and acp)
// implement it. It imports the vocabulary, the journal's drafts, policy and
// sandbox. Invariant: a runtime keeps no truth of its own; whatever it needs to
// go on after a crash it finds in the session's log.
package runtime

import (
	"context"
	"iter"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Runtime runs turns. Safe for concurrent use by many sessions.
type Runtime interface {
	// Name is the runtime's name as in a session: "native".
	Name() string
	// Run carries a turn from where its log stands to its result. The same call
	// starts a turn and continues one after a crash: message.user and
	// turn.started are in the log, anything may follow. When ctx is cancelled it
	// ends what it started in the box, answers dangling tool uses in the log, and
	// returns ctx's cause. An error fails the turn; the session stays usable.
	Run(ctx context.Context, t Turn, host Host) (Result, error)
}

// Requirer is a Runtime that needs something which not every server or session has.
type Requirer interface {
	// Require refuses a trust level, and a server on which the runtime cannot start its
	// agent: invalid or unavailable, with a hint. It is asked when a session is created
	// and when its runtime or trust changes, so it looks at this machine only.
	Require(trust holdfast.Trust) error
}

// NeedsBox is Require for a runtime that works in a sandbox: invalid for trusted sessions,
// which run on the host.
func NeedsBox(op, name string, trust holdfast.Trust) error {
	if trust != holdfast.Trusted {
		return nil
	}
	return holdfast.Errorf(holdfast.KindInvalid, op, "the runtime %s runs in a sandbox, and the session would be %s", holdfast.Quote(name), holdfast.Quote(string(trust))).
		WithHint("use --trust untrusted, or --runtime native")
}

// Resident is a Runtime whose turns live in their box: while one waits for a person
// it keeps the box, which is not stopped then.
type Resident interface {
	Resident()
}

// Screener is a Runtime that cannot carry out every message.
type Screener interface {
	// Screen refuses a message before it is taken: unsupported or invalid, with what to do
	// instead. Folder is that of the session's agent.
	Screen(text string, f *folder.Folder) error
}

// Warmer is a Runtime whose agent can be started ahead of a turn.
type Warmer interface {
	// Warm starts the session's agent and lets go of it, unless it runs already. The
	// turn has no id; the Host is for this call. An error changes nothing: the turn
	// that comes starts the agent.
	Warm(ctx context.Context, t Turn, host Host) error
}

// Transcriber is a Runtime whose agent keeps its conversation in a file.
type Transcriber interface {
	// TranscriptPath is where that of an agent lies, as the tools of its box see it.
	TranscriptPath(agentID string) string
}

// Turn is the work of one Run.
type Turn struct {
	Session holdfast.Session
	ID      holdfast.TurnID
	// Instructions are the agent's CLAUDE.md or AGENTS.md, and what the workspace adds.
	Instructions string
	// Folder is what the agent's version brings under .claude; nil is nothing.
	Folder *folder.Folder
	// Again: this turn was cut off before (a crash, or a steering message that
	// came with the end), so the log may hold part of it.
	Again bool
	// Meter guards the turn's budgets; nil bounds nothing.
	Meter Meter
	// Hooks hear of what only the runtime sees; nil when there are none. The engine
	// fires preToolUse, permissionRequest and permissionDenied within Decide, and
	// userPromptSubmit before a message is handed out.
	Hooks Hooks
}

// Hooks hear of what happens in a turn. With hooks an answer of the model has to be
// recorded before Decide or Fire is called for what it asked for. Safe for
// concurrent use.
type Hooks interface {
	// Fire runs the hooks for an event. Session, turn, mode and directory are filled
	// in. What they said is in the log with the next Record, before its events.
	Fire(ctx context.Context, in hook.Input) hook.Result
	// Said are the texts for the model since it was called last, those of Decide
	// among them, as hook.Texts gives them for the events in the log.
	Said() []string
	// Waits reports whether any hook would run for an event. The caller then gathers only
	// what a hook receives.
	Waits(in hook.Input) bool
}

// Meter guards what a turn may use up. Safe for concurrent use.
type Meter interface {
	// Bounded reports whether there is any budget: without one the estimate of a
	// reservation may be left at zero.
	Bounded() bool
	// Reserve sets aside, before a model call, what it may use up at the most;
	// denied says which budget that would overshoot. settle is called once, with
	// what was used and whether the call answered; before the answer is recorded.
	Reserve(most holdfast.Usage) (settle func(used holdfast.Usage, answered bool), err error)
	// Park waits until a time at which the provider takes calls again; the notice
	// that says so is recorded before. It ends with ctx's cause, or with an error
	// that ends the run without ending the turn.
	Park(ctx context.Context, until time.Time) error
}

// Result is how a turn ended well.
type Result struct {
	// Final are events still to be recorded: the engine commits them in one
	// transaction with turn.completed.
	Final []journal.Draft
	// Seen is the newest log entry taken into account; a steering message after
	// it makes the engine Run the turn again.
	Seen       int64
	Text       string
	StopReason string
	Usage      holdfast.Usage
	// Steps counts model calls.
	Steps int
	// States are agent states to commit with Final; an Upto of math.MaxInt64 stands
	// for the turn's end.
	States []holdfast.AgentState
}

// Host is the engine as a runtime sees it during one turn. Safe for concurrent use.
type Host interface {
	Logbook
	// Delta shows an unnumbered event to live readers.
	Delta(typ holdfast.EventType, data any)
	// Steered returns the message.user events that joined this turn after a
	// sequence number. A runtime asks before each model call.
	Steered(ctx context.Context, after int64) ([]holdfast.Event, error)
	// Box is the session's box, connected, started if need be; the same one until
	// it is lost. Errors are final for the tool call at hand.
	Box(ctx context.Context) (*sandbox.Box, error)
	// Outcome asks what became of a call whose intent is in the log: the box to
	// issue it again to (same id: attaches, fetches, or runs it if it never
	// arrived), or lost when the life of the box it was meant for is over and
	// nothing of it was kept. It starts no box without need.
	Outcome(ctx context.Context, started holdfast.ToolStarted) (box *sandbox.Box, lost bool, err error)
	// Release tells the box to forget calls whose outcome is recorded.
	Release(box *sandbox.Box, calls ...holdfast.CallID)
	// Decider says whether a tool may run, and what it may touch when it does.
	policy.Decider
	// NewCall mints a call id.
	NewCall() (holdfast.CallID, error)
	// At marks a named kill point for crash tests; a no-op otherwise.
	At(point string)
}

// Logbook is the session's log as a turn reads and writes it.
type Logbook interface {
	// Log reads the session's events after a sequence number.
	Log(ctx context.Context, after int64) iter.Seq2[holdfast.Event, error]
	// Conversation reads the session's log to its end and hands it to use as a
	// conversation, which is use's until it returns: texts may be kept, no pointers.
	Conversation(ctx context.Context, use func(*conversation.Conversation) error) error
	// Keep appends events of this turn in one durable transaction and returns them
	// numbered, together with agent states as they stand with these events. Either may be
	// none. After an error nothing more may be done in this turn.
	Keep(ctx context.Context, states []holdfast.AgentState, drafts ...journal.Draft) ([]holdfast.Event, error)
	// AgentStates are the session's references to agents that keep a conversation of
	// their own, by generation.
	AgentStates(ctx context.Context) ([]holdfast.AgentState, error)
}
