package acp

import (
	"encoding/json"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/jsonrpc"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// failure returns the error of the turn for an error that an agent reported.
func failure(agent string, e *jsonrpc.Error) error {
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
const idBytes = jsonrpc.MaxID

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

// pick returns the option that allows a call once, or one that denies the call, if possible once; "" if there is none.
// An option that allows later calls, too, is never picked: the server remembers decisions, not the agent.
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

// toolOf decodes a tool call. It returns false if the call cannot be decoded, or has no id or one of more than idBytes.
func toolOf(raw json.RawMessage) (toolCall, bool) {
	var c toolCall
	if json.Unmarshal(raw, &c) != nil || c.ID == "" || len(c.ID) > idBytes {
		return c, false
	}
	return c, true
}

// block is a content block of the Agent Client Protocol: a text, a difference of a file, or a block around another one.
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

// request returns the line of a request to the agent.
func request(id int64, method string, params any) []byte {
	return jsonrpc.Message{ID: jsonrpc.Number(id), Method: method, Params: resident.Marshal(params)}.Encode()
}

// refuse returns the answer to a request that is not supported.
func refuse(id jsonrpc.ID, method string) []byte {
	return jsonrpc.Message{ID: id, Error: &jsonrpc.Error{
		Code: jsonrpc.MethodNotFound, Message: "holdfast does not serve " + holdfast.Quote(method),
	}}.Encode()
}

// chosen returns the answer to a permission request: an option, or, without one, cancelled.
func chosen(id jsonrpc.ID, optionID string) []byte {
	outcome := acp.NewRequestPermissionOutcomeCancelled()
	if optionID != "" {
		outcome = acp.NewRequestPermissionOutcomeSelected(acp.PermissionOptionId(optionID))
	}
	return jsonrpc.Message{ID: id, Result: resident.Marshal(acp.RequestPermissionResponse{Outcome: outcome})}.Encode()
}
