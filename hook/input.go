package hook

import (
	"encoding/json"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

// Input describes an event to a hook, as JSON on the hook's stdin or in the body of the HTTP
// request. Fields that do not apply are absent; those of the session are present if known.
type Input struct {
	Event      Event           `json:"event"`
	ToolName   string          `json:"toolName,omitempty"`
	ToolInput  json.RawMessage `json:"toolInput,omitempty"`
	ToolOutput string          `json:"toolOutput,omitempty"`
	ToolUseID  string          `json:"toolUseId,omitempty"`
	// ToolUseIDs are the ids of the tool calls in a batch (event postToolBatch).
	ToolUseIDs []string           `json:"toolUseIds,omitempty"`
	Session    holdfast.SessionID `json:"sessionId,omitempty"`
	Turn       holdfast.TurnID    `json:"turnId,omitempty"`
	// Cwd is the working directory of the session's tools: a path in the box, or on the host if the session is trusted.
	Cwd            string        `json:"cwd,omitempty"`
	Error          string        `json:"error,omitempty"`
	TranscriptPath string        `json:"transcriptPath,omitempty"`
	Mode           holdfast.Mode `json:"permissionMode,omitempty"`
	AgentID        string        `json:"agentId,omitempty"`
	AgentType      string        `json:"agentType,omitempty"`
	StopHookActive bool          `json:"stopHookActive,omitempty"`
	// LastAssistantMessage is the agent's last answer, in events at the end of a turn.
	LastAssistantMessage string `json:"lastAssistantMessage,omitempty"`
	// Trigger names the cause of the event, for events that have several possible causes.
	Trigger               string          `json:"trigger,omitempty"`
	CustomInstructions    string          `json:"customInstructions,omitempty"`
	PermissionSuggestions []policy.Update `json:"permissionSuggestions,omitempty"`
	IsInterrupt           bool            `json:"isInterrupt,omitempty"`
	AgentTranscriptPath   string          `json:"agentTranscriptPath,omitempty"`
	// Prompt is the user's message. Message is the text of a notification, the reason for the event, or
	// more about what changed.
	Prompt  string `json:"prompt,omitempty"`
	Message string `json:"message,omitempty"`
	// FilePath is the file that changed.
	FilePath string `json:"filePath,omitempty"`
	// Key distinguishes this firing of the event from others: together with turn, tool use, file
	// and event it identifies the firing permanently. The hook does not get the key.
	Key string `json:"-"`
}

// json returns the input as the JSON that the hook gets.
func (in Input) json() []byte {
	if len(in.ToolInput) > 0 && !json.Valid(in.ToolInput) {
		in.ToolInput, _ = json.Marshal(string(in.ToolInput))
	}
	b, err := json.Marshal(in)
	if err != nil { // cannot happen: every field can be encoded as JSON
		return []byte("{}")
	}
	return b
}

// environ returns the variables about the event that a command gets in its environment.
func (in Input) environ() []string {
	return []string{
		"HOOK_EVENT=" + envValue(string(in.Event)), "HOOK_TOOL_NAME=" + envValue(in.ToolName),
		"HOOK_SESSION_ID=" + envValue(string(in.Session)), "HOOK_CWD=" + envValue(in.Cwd),
	}
}

// envValue returns s as a valid value of an environment variable: the model may choose s.
func envValue(s string) string { return oneLine(clean(s, maxName)) }
