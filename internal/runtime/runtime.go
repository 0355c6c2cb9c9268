// Package runtime is the contract between the engine and the ways in which an agent can run: the engine
// hands in one turn, the runtime adds events through the Host, and a Result ends the turn.
//
// The engine and package egress import it; the packages native, claude and acp below it implement it. It imports
// the vocabulary, conversation, folder, journal, hook, model, policy and sandbox. Invariant: a runtime stores no
// truth itself; whatever it needs to continue after a crash is in the session's log and its agent states.
package runtime

import (
	"context"
	"iter"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Runtime runs turns. Its methods are safe for concurrent use by many sessions.
type Runtime interface {
	// Name is the runtime's name as in a session: "native".
	Name() string
	// Run carries a turn from its last event in the log to its result. The same call starts a turn
	// and continues one after a crash: message.user and turn.started are in the log, and any events
	// of the turn may follow them. When ctx is cancelled, Run ends the tool calls that it started in
	// the box, records an outcome for each open tool use, and returns ctx's cause. Any other error
	// fails the turn; the session stays usable.
	Run(ctx context.Context, t Turn, host Host) (Result, error)
}

// Requirer is implemented by a Runtime that does not work on every server or for every session.
type Requirer interface {
	// Require refuses a trust level that the runtime cannot work with (KindInvalid), and a server
	// on which it cannot start its agent (KindUnavailable), each with a hint. It is called when a
	// session is created, when a session's runtime or trust changes, when a workspace names a runtime,
	// and for the list of runtimes. Require looks only at this machine.
	Require(trust holdfast.Trust) error
}

// Screener is implemented by a Runtime that cannot carry out every message.
type Screener interface {
	// Screen refuses a message before it is accepted, with KindInvalid and a
	// hint what to do instead. f is the .claude folder of the session's agent.
	Screen(text string, f *folder.Folder) error
}

// Warmer is implemented by a Runtime that can start a session's agent before a turn needs it.
type Warmer interface {
	// Warm starts the session's agent, unless it runs already, and detaches from it. The turn has
	// no id; the Host is valid for this call only. An error changes nothing: the next turn starts
	// the agent.
	Warm(ctx context.Context, t Turn, host Host) error
}

// Transcriber is implemented by a Runtime whose agent stores its conversation in a file.
type Transcriber interface {
	// TranscriptPath returns the path of an agent's conversation file, as its tools see it.
	TranscriptPath(at Place, agentID string) string
}

// Place has the paths at which the processes of a session find its files. The paths are the same in every box; a
// trusted session, which runs on the host, has other ones.
type Place struct {
	Workspace, Home string
	// Temp is the directory for temporary files, Sockets the one for Unix sockets that only the session's processes
	// reach, Agent the one with the files that the agent's version brings for an agent CLI.
	Temp, Sockets, Agent string
}

// Box is the Place of a session in a box.
var Box = Place{Workspace: policy.Cwd, Home: policy.Home, Temp: "/tmp", Sockets: "/run/holdfast", Agent: sandbox.AgentDir}

// OnHost returns the path of the workspace if the session runs on the host; empty if it runs in a box.
func (p Place) OnHost() string {
	if p == Box {
		return ""
	}
	return p.Workspace
}

// Turn is the work of one Run.
type Turn struct {
	Session holdfast.Session
	// Place is where the session's processes have its files.
	Place Place
	// PortKey is the key that requests at the session's ports must carry, empty if only its own processes can connect
	// to them.
	PortKey string
	ID      holdfast.TurnID
	// Instructions is the text of the agent's CLAUDE.md or AGENTS.md, and of the workspace's.
	Instructions string
	// Folder is the content of .claude in the agent's version, nil if there is none.
	Folder *folder.Folder
	// Again is true if an earlier Run of this turn did not finish it, because of a crash or because a
	// steering message arrived at its end: then the log may hold events of the turn already.
	Again bool
	// Meter enforces the turn's budgets. The engine always sets it; if it is nil, as in tests, the turn has no budgets.
	Meter model.Meter
	// GiveBack gives the session's box back until the next call of Host.Box: while the agent in it waits for
	// a person, the box may be frozen and stopped. If GiveBack is nil, the session keeps its box.
	GiveBack func()
	// Hooks runs the hooks for events that only the runtime notices, nil without hooks. The engine
	// runs preToolUse, permissionRequest and permissionDenied within Decide, and userPromptSubmit
	// before a message is handed out.
	Hooks hook.Turn
}

// Result is the outcome of a turn that succeeded.
type Result struct {
	// Final are the last events of the turn: the engine commits them in one transaction with
	// turn.completed.
	Final []journal.Draft
	// Seen is the number of the newest event that the run took into account. If a steering message
	// has a higher one, the engine calls Run again for this turn.
	Seen       int64
	Text       string
	StopReason string
	Usage      holdfast.Usage
	// Steps is the number of model calls of the turn; for an agent in the box, the number of its answers.
	Steps int
	// States are agent states to commit together with Final. An Upto of math.MaxInt64 is replaced
	// by the number of the turn's last event.
	States []holdfast.AgentState
}

// Host is what the engine offers a runtime during one turn. Safe for concurrent use.
type Host interface {
	Logbook
	// Delta sends an event without a number to live readers; it is not stored.
	Delta(typ holdfast.EventType, data any)
	// Steered returns the message.user events that joined this turn after an event number. The
	// runtime native calls it before each model call; the other runtimes call it at intervals.
	Steered(ctx context.Context, after int64) ([]holdfast.Event, error)
	// Box returns the session's box, connected and started if necessary; it is the same one until
	// it is lost. An error is final for the tool call that needs the box.
	Box(ctx context.Context) (*sandbox.Box, error)
	// Outcome finds out what happened to a call whose intent is in the log. It returns the box to issue the
	// call to again: with the same id, boxd attaches to the call, returns its outcome, or runs it if it never
	// arrived. lost is true if the start of the box that got the call has ended and no outcome was stored. It
	// starts a box only if that is needed.
	Outcome(ctx context.Context, started holdfast.ToolStarted) (box *sandbox.Box, lost bool, err error)
	// Release lets the box forget calls whose outcome is recorded.
	Release(box *sandbox.Box, calls ...holdfast.CallID)
	// Decider decides whether a tool may run and what it may touch.
	policy.Decider
	// NewCall returns a new call id.
	NewCall() (holdfast.CallID, error)
	// At marks a kill point for crash tests; it does nothing otherwise.
	At(point string)
}

// Logbook is the access of a turn to the session's log.
type Logbook interface {
	// Log returns the session's events after an event number.
	Log(ctx context.Context, after int64) iter.Seq2[holdfast.Event, error]
	// Conversation reads the session's log to its end and passes it to use as a conversation. use
	// may keep texts of it, but no pointers after it returns.
	Conversation(ctx context.Context, use func(*conversation.Conversation) error) error
	// Keep appends events of this turn in one durable transaction, together with the agent states that belong
	// to these events, and returns the numbered events. Either list may be empty. After an error the turn
	// must not do anything more.
	Keep(ctx context.Context, states []holdfast.AgentState, drafts ...journal.Draft) ([]holdfast.Event, error)
	// AgentStates returns the states of the session's agents that store a conversation of their
	// own, by generation.
	AgentStates(ctx context.Context) ([]holdfast.AgentState, error)
}
