package acp

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// message is a JSON-RPC message of the agent: a request, a notification or an answer. The SDK's
// types reject unknown values; these types decode only the fields that are needed.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *rpcError       `json:"error"`
}

type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// failure returns the error of the turn for an error that the agent reported.
func (e *rpcError) failure(agent string) error {
	kind := holdfast.KindUnavailable
	if e.Code == -32000 {
		kind = holdfast.KindUnauthenticated
	}
	said := e.Message
	if detail := strings.Trim(string(e.Data), `"`); len(detail) > 2 && detail != "null" {
		said += ": " + detail
	}
	return holdfast.Errorf(kind, op, "the agent %s failed: %s", holdfast.Quote(agent), holdfast.Quote(clip.Counted(said, 1000))).
		WithHint("send the message again")
}

// idBytes is the most bytes of an id that an agent may use, because ids are stored.
const idBytes = 256

// parse decodes a line; it fails if the line is not a JSON-RPC message.
func parse(line []byte) (message, error) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return m, err
	}
	if bytes.Equal(m.ID, []byte("null")) {
		m.ID = nil
	}
	if len(m.ID) > idBytes || m.Method == "" && m.ID == nil {
		return m, holdfast.Errorf(holdfast.KindInvalid, op, "a message of the agent is neither a request nor an answer")
	}
	return m, nil
}

// answers returns the id of our request that a message answers; ok is false for another message.
func (m *message) answers() (id int64, ok bool) {
	if m.Method != "" || m.ID == nil {
		return 0, false
	}
	id, err := strconv.ParseInt(string(m.ID), 10, 64)
	return id, err == nil
}

// update holds the parameters of session/update.
type update struct {
	Session string `json:"sessionId"`
	Update  struct {
		Kind      string          `json:"sessionUpdate"`
		MessageID string          `json:"messageId"`
		Content   json.RawMessage `json:"content"`
		Entries   []planEntry     `json:"entries"`
	} `json:"update"`
}

type planEntry struct {
	Content string `json:"content"`
	Status  string `json:"status"`
}

// toolCall is a tool call in a tool_call or tool_call_update, or in a permission request.
type toolCall struct {
	ID        string          `json:"toolCallId"`
	Title     string          `json:"title"`
	Name      string          `json:"name"`
	Kind      string          `json:"kind"`
	Status    string          `json:"status"`
	RawInput  json.RawMessage `json:"rawInput"`
	RawOutput json.RawMessage `json:"rawOutput"`
	Content   json.RawMessage `json:"content"`
	Locations []struct {
		Path string `json:"path"`
	} `json:"locations"`
	Meta struct {
		Claude struct {
			ToolName string `json:"toolName"`
		} `json:"claudeCode"`
	} `json:"_meta"`
}

// permission holds the parameters of session/request_permission.
type permission struct {
	ToolCall json.RawMessage `json:"toolCall"`
	Options  []option        `json:"options"`
}

type option struct {
	ID   string `json:"optionId"`
	Kind string `json:"kind"`
}

// pick returns the option that allows or denies a call once, or "" if there is none. An option
// that allows for longer is never picked: the server remembers decisions, not the agent.
func (p *permission) pick(allow bool) string {
	kinds := []acp.PermissionOptionKind{acp.PermissionOptionKindRejectOnce, acp.PermissionOptionKindRejectAlways}
	if allow {
		kinds = []acp.PermissionOptionKind{acp.PermissionOptionKindAllowOnce}
	}
	for _, k := range kinds {
		for _, o := range p.Options {
			if o.Kind == string(k) {
				return o.ID
			}
		}
	}
	return ""
}

// toolOf decodes a tool call; ok is false if it has no id.
func toolOf(raw json.RawMessage) (toolCall, bool) {
	var c toolCall
	if json.Unmarshal(raw, &c) != nil || c.ID == "" || len(c.ID) > idBytes {
		return c, false
	}
	return c, true
}

// block is a content block.
type block struct {
	Type    string  `json:"type"`
	Text    string  `json:"text"`
	Path    string  `json:"path"`
	OldText *string `json:"oldText"`
	NewText string  `json:"newText"`
	// Content is the content of a block of type content.
	Content *block `json:"content"`
}

// textOf returns the text of one content block.
func textOf(raw json.RawMessage) string {
	var b block
	if json.Unmarshal(raw, &b) != nil {
		return ""
	}
	return b.Text
}

// blocksOf returns the content blocks of a tool call.
func blocksOf(raw json.RawMessage) []block {
	var out []block
	if json.Unmarshal(raw, &out) != nil {
		return nil
	}
	for i, b := range out {
		if b.Type == "content" && b.Content != nil {
			out[i] = *b.Content
		}
	}
	return out
}

// opened is the answer to session/new and session/load.
type opened struct {
	Session string `json:"sessionId"`
	Modes   struct {
		Current   string `json:"currentModeId"`
		Available []struct {
			ID string `json:"id"`
		} `json:"availableModes"`
	} `json:"modes"`
}

// introduced is the answer to initialize.
type introduced struct {
	Version      int `json:"protocolVersion"`
	Capabilities struct {
		Load bool `json:"loadSession"`
	} `json:"agentCapabilities"`
	Agent struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	} `json:"agentInfo"`
}

// prompted is the answer to session/prompt.
type prompted struct {
	StopReason string `json:"stopReason"`
	Usage      struct {
		Input      int64 `json:"inputTokens"`
		Output     int64 `json:"outputTokens"`
		CacheRead  int64 `json:"cachedReadTokens"`
		CacheWrite int64 `json:"cachedWriteTokens"`
	} `json:"usage"`
}

// usage returns the usage of the prompt that the agent reports.
func (p *prompted) usage() holdfast.Usage {
	return holdfast.Usage{
		InputTokens: p.Usage.Input, OutputTokens: p.Usage.Output, CacheReadTokens: p.Usage.CacheRead, CacheWriteTokens: p.Usage.CacheWrite,
	}.Clamp()
}

// outgoing is a message to the agent.
type outgoing struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

// line returns a message as it is sent. All these messages can be encoded.
func line(o outgoing) []byte {
	o.Version = "2.0"
	return resident.Marshal(o)
}

// request returns the line of a request to the agent.
func request(id int64, method string, params any) []byte {
	return line(outgoing{ID: strconv.AppendInt(nil, id, 10), Method: method, Params: params})
}

// refuse returns the answer to a request that is not supported.
func refuse(id json.RawMessage, method string) []byte {
	return line(outgoing{ID: id, Error: &rpcError{Code: -32601, Message: "holdfast does not serve " + holdfast.Quote(method)}})
}

// chosen returns the answer to a permission request: an option, or, without one, cancelled.
func chosen(id json.RawMessage, optionID string) []byte {
	outcome := acp.NewRequestPermissionOutcomeCancelled()
	if optionID != "" {
		outcome = acp.NewRequestPermissionOutcomeSelected(acp.PermissionOptionId(optionID))
	}
	return line(outgoing{ID: id, Result: acp.RequestPermissionResponse{Outcome: outcome}})
}
