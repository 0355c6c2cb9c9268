// Package hook runs hooks: functions, shell commands and HTTP requests that are registered for
// events of a session, such as a tool call, a prompt or the end of a turn, and that may block,
// rewrite or comment the event.
//
// It owns the events, the registry, the input of hooks, the parsing of their answers, and the
// execution of commands on the host. The agent loop, the runtimes and the parts of the server that
// configure, run or retell hooks import it; it imports the vocabulary, policy and sandbox. Invariant: a hook that hangs, writes too much or
// dies delays its event by little more than its timeout and is recorded as a failure; it never
// ends the program and never lifts another hook's denial. A hook that ran in a box can make a
// decision only stricter, never milder.
package hook

import (
	"slices"

	"github.com/holdfast-run/holdfast"
)

// Event names a kind of event for which hooks can be registered.
type Event string

// The events. Hooks can be registered for all of them. No runtime fires the events of child agents, teammates,
// tasks, compaction and worktrees yet.
const (
	PreToolUse         Event = "preToolUse"
	PostToolUse        Event = "postToolUse"
	PostToolUseFailure Event = "postToolUseFailure"
	// PostToolBatch fires after all tool calls of one answer of the model have ended.
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
	return "", holdfast.Errorf(holdfast.KindInvalid, op, "%s is not a hook event", holdfast.Quote(s)).
		WithHint("use the name of a hook event, such as one of: %s", joined(events[:8]))
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
