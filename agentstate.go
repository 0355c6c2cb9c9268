package holdfast

import (
	"encoding/json"
	"time"
)

// AgentHealth says whether what an agent keeps of itself can be used.
type AgentHealth string

// The healths. Current is what the next turn of that runtime goes on with; a session
// has at most one for each runtime.
const (
	HealthCurrent AgentHealth = "current"
	// HealthQuarantined: it was found broken, and is kept aside.
	HealthQuarantined AgentHealth = "quarantined"
	// HealthLeft: it is whole, and another one took its place.
	HealthLeft AgentHealth = "left"
)

// AgentState is a session's reference to an agent that keeps a conversation of its
// own: a CLI in a box. What the agent keeps is a cache; newness is what stands
// here. It is committed with the events that it accounts for.
type AgentState struct {
	// Generation counts a session's states from 1, in the order of their making.
	Generation int64 `json:"generation"`
	// Runtime is as in a session; AgentID is what the agent calls itself.
	Runtime string      `json:"runtime"`
	AgentID string      `json:"agent_id"`
	Health  AgentHealth `json:"health"`
	// Version is the agent's, as it said.
	Version string `json:"version,omitempty"`
	// Turns is how many completed turns it knows, Upto the newest log entry: what
	// came later, from another runtime, has to be told to it.
	Turns int64 `json:"turns"`
	Upto  int64 `json:"upto"`
	// Call is the exec that runs it, in that life of that box; empty when none was
	// started. Taken is how far its output is accounted for in the log (HZ-12).
	Call  CallID `json:"call_id,omitempty"`
	Box   BoxID  `json:"box_id,omitempty"`
	Boot  string `json:"boot,omitempty"`
	Taken int64  `json:"taken,omitempty"`
	// Data is the runtime's own: JSON, at most 256 KiB.
	Data json.RawMessage `json:"data,omitempty"`
}

// AgentStarted is the payload of agent_state.started: an agent was started, or found
// running, and this is what it knows. It is the receipt of a runtime whose agent
// keeps a conversation of its own.
type AgentStarted struct {
	Generation int64  `json:"generation"`
	Runtime    string `json:"runtime"`
	AgentID    string `json:"agent_id"`
	Version    string `json:"version,omitempty"`
	Tier       Tier   `json:"tier"`
	// Turns is how many completed turns were loaded, Of how many there are. With tier
	// injected Truncated says that not all of the history had room.
	Turns     int64 `json:"turns_loaded"`
	Of        int64 `json:"turns_completed"`
	Truncated bool  `json:"truncated,omitempty"`
	// Reason says why it was not the tier before it.
	Reason     string  `json:"reason,omitempty"`
	Call       CallID  `json:"call_id,omitempty"`
	Box        BoxID   `json:"box_id,omitempty"`
	DurationMS float64 `json:"duration_ms"`
}

// AgentMirrored is the payload of agent_state.mirrored: entries that an agent added
// to a transcript of its own, as it wrote them.
type AgentMirrored struct {
	Generation int64 `json:"generation"`
	// File is the transcript, below the agent's state; empty is the conversation's own.
	File    string            `json:"file,omitempty"`
	Entries []json.RawMessage `json:"entries"`
}

// AgentQuarantined is the payload of agent_state.quarantined: what an agent kept is
// not whole, and was put aside.
type AgentQuarantined struct {
	Generation int64  `json:"generation"`
	Runtime    string `json:"runtime"`
	AgentID    string `json:"agent_id"`
	Reason     string `json:"reason"`
	// Kept is where it lies in the box.
	Kept string `json:"kept,omitempty"`
}

// EgressDecision is the payload of egress.allowed and egress.denied: something in a
// box asked for the network. An allowed one is recorded when it has ended.
type EgressDecision struct {
	// Via is model or proxy: the way it took.
	Via    string `json:"via"`
	Method string `json:"method"`
	Host   string `json:"host"`
	Port   int    `json:"port,omitempty"`
	Path   string `json:"path,omitempty"`
	// Rule is the rule that decided, Reason says why not.
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Address is what the server resolved and connected to.
	Address    string  `json:"address,omitempty"`
	Sent       int64   `json:"sent_bytes,omitempty"`
	Received   int64   `json:"received_bytes,omitempty"`
	DurationMS float64 `json:"duration_ms,omitempty"`
	// Count is above 1 where so many alike were gathered, until Last.
	Count int        `json:"count,omitempty"`
	Last  *time.Time `json:"last,omitempty"`
}
