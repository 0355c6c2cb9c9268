package holdfast

import (
	"encoding/json"
	"time"
)

// Role says whose entry of a transcript it is.
type Role string

// The roles. A tool entry is the model's request, a result entry its outcome; a
// notice says how a turn ended that did not complete.
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
	// Seq is the event that the entry comes from.
	Seq  int64  `json:"seq"`
	Turn TurnID `json:"turn_id,omitempty"`
	Role Role   `json:"role"`
	Text string `json:"text,omitempty"`
	// Tool and Input are of a tool entry; ToolUseID joins it to its result.
	Tool      string          `json:"tool,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	// Outcome is of a result (an ExitClass, denied or unknown) and of a notice
	// (failed, interrupted).
	Outcome string    `json:"outcome,omitempty"`
	Time    time.Time `json:"time"`
}
