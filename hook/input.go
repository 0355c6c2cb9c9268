package hook

import (
	"encoding/json"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

// Input is what a hook is told: as JSON on its stdin or in the request's body.
// Fields that do not apply are absent; the session's are there whenever known.
type Input struct {
	Event      Event           `json:"event"`
	ToolName   string          `json:"toolName,omitempty"`
	ToolInput  json.RawMessage `json:"toolInput,omitempty"`
	ToolOutput string          `json:"toolOutput,omitempty"`
	ToolUseID  string          `json:"toolUseId,omitempty"`
	// ToolUseIDs are the calls of a batch.
	ToolUseIDs []string           `json:"toolUseIds,omitempty"`
	Session    holdfast.SessionID `json:"sessionId,omitempty"`
	Turn       holdfast.TurnID    `json:"turnId,omitempty"`
	// Cwd is the tools' working directory, as they see it.
	Cwd            string        `json:"cwd,omitempty"`
	Error          string        `json:"error,omitempty"`
	TranscriptPath string        `json:"transcriptPath,omitempty"`
	Mode           holdfast.Mode `json:"permissionMode,omitempty"`
	AgentID        string        `json:"agentId,omitempty"`
	AgentType      string        `json:"agentType,omitempty"`
	StopHookActive bool          `json:"stopHookActive,omitempty"`
	// LastAssistantMessage is the agent's last answer, at the end of a turn.
	LastAssistantMessage string `json:"lastAssistantMessage,omitempty"`
	// Trigger says what brought the event about, where that is not always the same.
	Trigger               string          `json:"trigger,omitempty"`
	CustomInstructions    string          `json:"customInstructions,omitempty"`
	PermissionSuggestions []policy.Update `json:"permissionSuggestions,omitempty"`
	IsInterrupt           bool            `json:"isInterrupt,omitempty"`
	AgentTranscriptPath   string          `json:"agentTranscriptPath,omitempty"`
	// Prompt is what the user said; Message the text of a notification, or why.
	Prompt  string `json:"prompt,omitempty"`
	Message string `json:"message,omitempty"`
	// FilePath is the file that changed.
	FilePath string `json:"filePath,omitempty"`
	// Key tells the event from others like it: with the turn, the tool use and the
	// event it names this firing for good. It is not told.
	Key string `json:"-"`
}

// json is the input as a hook reads it.
func (in Input) json() []byte {
	if len(in.ToolInput) > 0 && !json.Valid(in.ToolInput) {
		in.ToolInput, _ = json.Marshal(string(in.ToolInput))
	}
	b, err := json.Marshal(in)
	if err != nil { // cannot be: strings and valid JSON
		return []byte("{}")
	}
	return b
}

// environ are the variables that a command gets on top of its place's own.
func (in Input) environ() []string {
	return []string{
		"HOOK_EVENT=" + envValue(string(in.Event)), "HOOK_TOOL_NAME=" + envValue(in.ToolName),
		"HOOK_SESSION_ID=" + envValue(string(in.Session)), "HOOK_CWD=" + envValue(in.Cwd),
	}
}

// envValue is a value that an environment can hold: the model chooses tool names.
func envValue(s string) string { return oneLine(clean(s, maxName)) }
