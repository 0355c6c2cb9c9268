package claude

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// line holds the fields of an output line of the CLI that the runtime reads. The Type decides which of them
// are set. Fields whose JSON can have several forms are not decoded.
type line struct {
	Type    string `json:"type"`
	Subtype string `json:"subtype"`
	UUID    string `json:"uuid"`
	// Parent is the tool use of the sub-agent that wrote the line, Agent is that sub-agent; both
	// are empty for the main agent.
	Parent string `json:"parent_tool_use_id"`
	Agent  string `json:"agent_id"`

	// Event and Abandoned are fields of lines of type stream_event.
	Event     streamEvent `json:"event"`
	Abandoned *abandoned  `json:"abandoned_blocks"`
	// Message is a field of lines of type assistant and user.
	Message message `json:"message"`
	// RequestID belongs to control_request and control_cancel_request, Request to the first, Response to control_response.
	RequestID string   `json:"request_id"`
	Request   request  `json:"request"`
	Response  response `json:"response"`
	// File and Entries are fields of lines of type transcript_mirror.
	File    string            `json:"filePath"`
	Entries []json.RawMessage `json:"entries"`
	// Command and State are fields of lines of type command_lifecycle.
	Command string `json:"command_uuid"`
	State   string `json:"state"`
	outcomeLine
	retryLine
}

// outcomeLine holds the further fields of a line of type result.
type outcomeLine struct {
	IsError bool            `json:"is_error"`
	Result  json.RawMessage `json:"result"`
	Errors  json.RawMessage `json:"errors"`
	Reason  string          `json:"terminal_reason"`
	Status  int             `json:"api_error_status"`
	Stop    string          `json:"stop_reason"`
	// Prompts are the ids of the messages that the result covers.
	Prompts []string `json:"user_message_uuids"`
}

// retryLine holds the fields of a line of type system/api_retry.
type retryLine struct {
	Attempt     int     `json:"attempt"`
	MaxRetries  int     `json:"max_retries"`
	RetryDelay  float64 `json:"retry_delay_ms"`
	ErrorStatus int     `json:"error_status"`
}

// retry describes that the CLI repeats a failed model call.
func (l *retryLine) retry() string {
	wait := time.Duration(l.RetryDelay * float64(time.Millisecond))
	what := "the model's provider did not answer"
	if l.ErrorStatus != 0 {
		what = fmt.Sprintf("the model's provider answered %d", l.ErrorStatus)
	}
	return fmt.Sprintf("%s; trying again in %s (%d of %d)", what, wait.Round(time.Millisecond), l.Attempt+1, l.MaxRetries+1)
}

// abandoned holds the index of a block. Of a message that broke off, the blocks from that index on are void.
type abandoned struct {
	From int `json:"from_block_index"`
}

type streamEvent struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message struct {
		ID    string `json:"id"`
		Model string `json:"model"`
		Usage usage  `json:"usage"`
	} `json:"message"`
	Delta struct {
		Type       string `json:"type"`
		Text       string `json:"text"`
		Thinking   string `json:"thinking"`
		StopReason string `json:"stop_reason"`
	} `json:"delta"`
	Usage *usage `json:"usage"`
}

type usage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}

type message struct {
	ID      string          `json:"id"`
	Role    string          `json:"role"`
	Model   string          `json:"model"`
	Stop    string          `json:"stop_reason"`
	Usage   usage           `json:"usage"`
	Content json.RawMessage `json:"content"`
}

// block is a content block of a message in the CLI's output: text, thinking, a tool use or a tool's outcome.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

// blocks returns the blocks of a message's content; a plain string becomes one text block.
func blocks(content json.RawMessage) []block {
	var list []block
	if json.Unmarshal(content, &list) == nil {
		return list
	}
	var text string
	if json.Unmarshal(content, &text) == nil && text != "" {
		return []block{{Type: "text", Text: text}}
	}
	return nil
}

// textOf returns content as text: a string, or the text blocks, with the type of each other block in place of it.
func textOf(content json.RawMessage) string {
	var parts []string
	for _, b := range blocks(content) {
		switch b.Type {
		case "text":
			parts = append(parts, b.Text)
		default:
			parts = append(parts, "["+b.Type+"]")
		}
	}
	return strings.Join(parts, "\n")
}

// stringOf returns a raw JSON string as a string, and any other value as its JSON.
func stringOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	if bytes.Equal(raw, []byte("null")) {
		return ""
	}
	return string(raw)
}

// request is a request of the CLI to the server.
type request struct {
	Subtype string `json:"subtype"`
	// Callback, Input and RawInput are fields of requests of subtype hook_callback, RawInput also of can_use_tool.
	Callback string          `json:"callback_id"`
	Input    hookInput       `json:"-"`
	RawInput json.RawMessage `json:"input"`
	// ToolUseID, Tool and Agent are fields of requests of subtype can_use_tool, ToolUseID also of hook_callback.
	ToolUseID string `json:"tool_use_id"`
	Tool      string `json:"tool_name"`
	Agent     string `json:"agent_id"`
	// Server and Message are fields of requests of subtype mcp_message.
	Server  string          `json:"server_name"`
	Message json.RawMessage `json:"message"`
}

type hookInput struct {
	Event     string          `json:"hook_event_name"`
	Tool      string          `json:"tool_name"`
	ToolInput json.RawMessage `json:"tool_input"`
	ToolUseID string          `json:"tool_use_id"`
	Agent     string          `json:"agent_id"`
	Output    json.RawMessage `json:"tool_response"`
	Error     json.RawMessage `json:"error"`
}

// response is the CLI's answer to a request of the server.
type response struct {
	Subtype   string          `json:"subtype"`
	RequestID string          `json:"request_id"`
	Error     json.RawMessage `json:"error"`
	Response  json.RawMessage `json:"response"`
}

// greeting is the CLI's description of itself in the answer to initialize.
type greeting struct {
	Version      string `json:"claude_code_version"`
	HooksApplied bool   `json:"hooks_applied"`
}

// parseLine decodes a line. It fails for a line that is not a JSON object, and leaves out fields
// of an unexpected type.
func parseLine(raw []byte) (line, error) {
	var l line
	if err := json.Unmarshal(raw, &l); err != nil {
		var kind *json.UnmarshalTypeError
		if !errors.As(err, &kind) || l.Type == "" {
			return line{}, err
		}
	}
	if l.Request.Subtype == "hook_callback" {
		_ = json.Unmarshal(l.Request.RawInput, &l.Request.Input)
	}
	return l, nil
}

// The ids of the requests and callbacks are constant, so that a server that attaches in the
// middle of a turn need not repeat the handshake.
const (
	handshakeID  = "hf-initialize"
	callbackPre  = "hf-pre"
	callbackPost = "hf-post"
	// callbackSeconds is how long the CLI waits for the answer to a callback: longer than a person takes to decide.
	callbackSeconds = 365 * 24 * 3600
)

func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		// The values are made here or were decoded from JSON, so encoding does not fail.
		return []byte("{}\n")
	}
	return b.Bytes()
}

type object map[string]any

// handshake returns the request that registers the callbacks and the server's tools, and passes
// the agent's instructions and sub-agents.
func handshake(instructions string, agents map[string]any, tools bool) []byte {
	hook := func(id string) []object {
		return []object{{"matcher": "*", "hookCallbackIds": []string{id}, "timeout": callbackSeconds}}
	}
	req := object{
		"subtype": "initialize",
		"hooks":   object{"PreToolUse": hook(callbackPre), "PostToolUse": hook(callbackPost), "PostToolUseFailure": hook(callbackPost)},
	}
	if instructions != "" {
		req["appendSystemPrompt"] = instructions
	}
	if len(agents) > 0 {
		req["agents"] = agents
	}
	if tools {
		req["sdkMcpServers"] = []string{mcpServer}
	}
	return control(handshakeID, req)
}

func control(id string, req object) []byte {
	return encode(object{"type": "control_request", "request_id": id, "request": req})
}

func prompt(uuid, text string) []byte {
	return encode(object{"type": "user", "uuid": uuid, "message": object{"role": "user", "content": text}})
}

// reply returns the answer to a request of the CLI.
func reply(id string, body any) []byte {
	return encode(object{"type": "control_response", "response": object{"subtype": "success", "request_id": id, "response": body}})
}

// refuse returns the answer to a request of the CLI that the server does not support.
func refuse(id, why string) []byte {
	return encode(object{"type": "control_response", "response": object{"subtype": "error", "request_id": id, "error": why}})
}
