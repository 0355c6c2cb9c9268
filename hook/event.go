// Package hook runs what its owner hung onto the events of a session: functions,
// shell commands and addresses that hear of a tool call, a prompt or the end of a
// turn, and may block, rewrite or comment it.
//
// It owns the events, the registry, what a hook is told and how its answer is
// read, and the way commands run on the host. The agent loop, the runtimes and
// the engine import it; it imports the vocabulary, policy and the allow table of
// the environment. Invariant: a hook that hangs, floods, dies or answers nonsense
// costs its own time and is a recorded failure; it never ends the program, never
// lifts another hook's denial, and what ran in a box may only be stricter, never
// milder.
package hook

import (
	"slices"

	"github.com/holdfast-run/holdfast"
)

// Event is what a hook waits for.
type Event string

// The events. Those of child agents, tasks, compaction, worktrees and snapshots
// may be registered for, and fire once there is such a thing.
const (
	PreToolUse         Event = "preToolUse"
	PostToolUse        Event = "postToolUse"
	PostToolUseFailure Event = "postToolUseFailure"
	// PostToolBatch is after all tool calls of one answer of the model.
	PostToolBatch     Event = "postToolBatch"
	SessionStart      Event = "sessionStart"
	SessionEnd        Event = "sessionEnd"
	Stop              Event = "stop"
	SubagentStart     Event = "subagentStart"
	SubagentStop      Event = "subagentStop"
	UserPromptSubmit  Event = "userPromptSubmit"
	PermissionRequest Event = "permissionRequest"
	PermissionDenied  Event = "permissionDenied"
	TaskCreated       Event = "taskCreated"
	TaskCompleted     Event = "taskCompleted"
	ConfigChange      Event = "configChange"
	CwdChanged        Event = "cwdChanged"
	FileChanged       Event = "fileChanged"
	Notify            Event = "notification"
	PreCompact        Event = "preCompact"
	PostCompact       Event = "postCompact"
	TeammateIdle      Event = "teammateIdle"
	Setup             Event = "setup"
	WorktreeCreate    Event = "worktreeCreate"
	WorktreeRemove    Event = "worktreeRemove"
	SessionPaused     Event = "sessionPaused"
	SessionResumed    Event = "sessionResumed"
	SandboxStarted    Event = "sandboxStarted"
	SandboxStopped    Event = "sandboxStopped"
	SnapshotTaken     Event = "snapshotTaken"
)

var events = []Event{
	PreToolUse, PostToolUse, PostToolUseFailure, PostToolBatch, SessionStart, SessionEnd, Stop, SubagentStart, SubagentStop,
	UserPromptSubmit, PermissionRequest, PermissionDenied, TaskCreated, TaskCompleted, ConfigChange, CwdChanged, FileChanged,
	Notify, PreCompact, PostCompact, TeammateIdle, Setup, WorktreeCreate, WorktreeRemove, SessionPaused, SessionResumed,
	SandboxStarted, SandboxStopped, SnapshotTaken,
}

// Events lists all events.
func Events() []Event { return slices.Clone(events) }

// ParseEvent accepts exactly the names of the events.
func ParseEvent(s string) (Event, error) {
	if slices.Contains(events, Event(s)) {
		return Event(s), nil
	}
	return "", holdfast.Errorf(holdfast.KindInvalid, op, "%s is not an event", holdfast.Quote(s)).
		WithHint("use one of: %s, …", joined(events[:8]))
}

func joined(list []Event) string {
	out := ""
	for i, e := range list {
		if i > 0 {
			out += ", "
		}
		out += string(e)
	}
	return out
}

const op = "hook"
