package holdfast

import (
	"encoding/json"
	"time"
)

// Role says who made a transcript entry, or what kind of entry it is.
type Role string

// The roles. A tool entry is the model's request for a tool call, a result entry that
// call's outcome. A notice says that a turn failed or was interrupted.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleThinking  Role = "thinking"
	RoleTool      Role = "tool"
	RoleResult    Role = "result"
	RoleNotice    Role = "notice"
)

// TranscriptEntry is one piece of a conversation, as GET
// /v1/sessions/{id}/transcript reads it from the log.
type TranscriptEntry struct {
	// Seq is the number of the event that the entry was read from.
	Seq  int64  `json:"seq"`
	Turn TurnID `json:"turn_id,omitempty"`
	Role Role   `json:"role"`
	Text string `json:"text,omitempty"`
	// Tool and Input are set in a tool entry. ToolUseID is the same in a tool entry and in
	// its result entry.
	Tool      string          `json:"tool,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	// Outcome is set in a result entry (an ExitClass, denied or unknown) and in a notice
	// (failed or interrupted).
	Outcome string    `json:"outcome,omitempty"`
	Time    time.Time `json:"time"`
}
