package holdfast

import (
	"encoding/json"
	"time"
)

// AgentHealth says whether the conversation that an agent CLI stored for itself can be used.
type AgentHealth string

// The values of AgentHealth. The next turn of a runtime continues from the state with
// HealthCurrent; a session has at most one such state for each runtime.
const (
	HealthCurrent AgentHealth = "current"
	// HealthQuarantined marks a state that was found broken and was moved out of the way.
	HealthQuarantined AgentHealth = "quarantined"
	// HealthLeft marks an intact state that is out of use: a newer one replaced it, or the session was rewound.
	HealthLeft AgentHealth = "left"
)

// AgentState is a session's record of an agent CLI in a box, which stores a conversation
// of its own. The agent's files are only a cache; this record says how much of the log
// they contain. It is committed together with the events that it accounts for.
type AgentState struct {
	// Generation numbers a session's agent states from 1, in the order of their creation.
	Generation int64 `json:"generation"`
	// Runtime is the runtime's name, as in Session.Runtime. AgentID is the id that the
	// agent chose for its own conversation.
	Runtime string      `json:"runtime"`
	AgentID string      `json:"agent_id"`
	Health  AgentHealth `json:"health"`
	// Version is the version that the agent reported for itself.
	Version string `json:"version,omitempty"`
	// Turns is how many completed turns the agent has in its conversation, Upto the
	// sequence number of the newest log entry in it. Later entries, made by another
	// runtime, still have to be given to the agent.
	Turns int64 `json:"turns"`
	Upto  int64 `json:"upto"`
	// Call is the exec call that runs the agent's process in box Box during its boot Boot;
	// empty if no process was started. Taken is the offset in the process's output, in
	// bytes, up to which the log accounts for it (HZ-12).
	Call  CallID `json:"call_id,omitempty"`
	Box   BoxID  `json:"box_id,omitempty"`
	Boot  string `json:"boot,omitempty"`
	Taken int64  `json:"taken,omitempty"`
	// Data is JSON of at most 256 KiB that only the runtime reads and writes.
	Data json.RawMessage `json:"data,omitempty"`
}

// AgentStarted is the payload of agent_state.started: an agent CLI was started, or found
// running. Its fields say how much of the session's history the agent has. It is the resume
// receipt of a runtime whose agent stores a conversation of its own.
type AgentStarted struct {
	Generation int64  `json:"generation"`
	Runtime    string `json:"runtime"`
	AgentID    string `json:"agent_id"`
	Version    string `json:"version,omitempty"`
	Tier       Tier   `json:"tier"`
	// Turns is how many completed turns the agent has, Of how many the session has. If Tier is
	// injected, Truncated says that the history was too long and was cut.
	Turns     int64 `json:"turns_loaded"`
	Of        int64 `json:"turns_completed"`
	Truncated bool  `json:"truncated,omitempty"`
	// Reason says why the session's agent could not be resumed with a better tier, that is, with more of its own
	// conversation.
	Reason     string  `json:"reason,omitempty"`
	Call       CallID  `json:"call_id,omitempty"`
	Box        BoxID   `json:"box_id,omitempty"`
	DurationMS float64 `json:"duration_ms"`
}

// AgentMirrored is the payload of agent_state.mirrored: a verbatim copy of the entries
// that an agent CLI added to its own transcript file.
type AgentMirrored struct {
	Generation int64 `json:"generation"`
	// File is the transcript's path relative to the agent's state directory; empty means
	// the main conversation's transcript.
	File    string            `json:"file,omitempty"`
	Entries []json.RawMessage `json:"entries"`
}

// AgentQuarantined is the payload of agent_state.quarantined: the conversation that an
// agent CLI had stored is damaged, and was moved out of the way.
type AgentQuarantined struct {
	Generation int64  `json:"generation"`
	Runtime    string `json:"runtime"`
	AgentID    string `json:"agent_id"`
	Reason     string `json:"reason"`
	// Kept is the path in the box to which the damaged files were moved.
	Kept string `json:"kept,omitempty"`
}

// EgressDecision is the payload of egress.allowed and egress.denied: a process in a box
// made a network request. An allowed request is recorded when it has ended.
type EgressDecision struct {
	// Via says how the request left the box: "model" (the broker for model calls) or "proxy".
	Via    string `json:"via"`
	Method string `json:"method"`
	Host   string `json:"host"`
	Port   int    `json:"port,omitempty"`
	Path   string `json:"path,omitempty"`
	// Rule is the rule that decided. Reason says why the request was denied.
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Address is the IP address that the server resolved Host to and connected to.
	Address    string  `json:"address,omitempty"`
	Sent       int64   `json:"sent_bytes,omitempty"`
	Received   int64   `json:"received_bytes,omitempty"`
	DurationMS float64 `json:"duration_ms,omitempty"`
	// Count is how many similar requests this event sums up, with Last the time of the
	// newest; both are absent if it records one request.
	Count int        `json:"count,omitempty"`
	Last  *time.Time `json:"last,omitempty"`
}
