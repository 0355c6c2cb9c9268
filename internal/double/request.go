package double

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
)

// maxMarkers is how many blocks of a request may have cache_control.
const maxMarkers = 4

// resume is the beginning of the text that the Claude Code CLI sends as the user after an answer
// was cut off in mid-stream. Before it, the request has the part of the answer that arrived.
const resume = "Your response above was cut off"

// call is a request to the Messages API, converted to the form of the scripted model.
type call struct {
	model.Request
	stream bool
}

type body struct {
	Model     string          `json:"model"`
	MaxTokens *int64          `json:"max_tokens"`
	Stream    bool            `json:"stream"`
	System    json.RawMessage `json:"system"`
	Tools     []tool          `json:"tools"`
	Messages  []message       `json:"messages"`
	Metadata  struct {
		UserID string `json:"user_id"`
	} `json:"metadata"`
}

type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`

	blocks []block
}

type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

// parse checks a request as the API does, and converts it to the model's form.
func parse(h http.Header, raw []byte, generate bool) (call, *refusal) {
	var c call
	if h.Get("x-api-key") == "" && strings.TrimPrefix(h.Get("authorization"), "Bearer ") == "" {
		return c, &refusal{http.StatusUnauthorized, "authentication_error", "x-api-key header is required", 0}
	}
	if h.Get("anthropic-version") == "" {
		return c, invalid("anthropic-version: header is required")
	}
	var b body
	if err := json.Unmarshal(raw, &b); err != nil {
		return c, invalid("The request body is not valid JSON: %v", err)
	}
	switch {
	case b.Model == "":
		return c, invalid("model: Field required")
	case generate && b.MaxTokens == nil:
		return c, invalid("max_tokens: Field required")
	case generate && *b.MaxTokens < 1:
		return c, invalid("max_tokens: must be greater than or equal to 1")
	case len(b.Messages) == 0:
		return c, invalid("messages: at least one message is required")
	case len(markers(raw)) > maxMarkers:
		return c, invalid("A maximum of %d blocks with cache_control may be provided. Found %d.", maxMarkers, len(markers(raw)))
	}
	c.stream, c.Model = b.Stream, b.Model
	c.Session = holdfast.SessionID(cmp.Or(h.Get("x-claude-code-session-id"), userSession(b.Metadata.UserID)))
	system, no := contentBlocks("system", b.System)
	if no != nil {
		return c, no
	}
	c.System = joined(system)
	for _, t := range b.Tools {
		if t.Name == "" {
			return c, invalid("tools: a tool needs a name")
		}
		c.Tools = append(c.Tools, model.Tool{Name: t.Name, Description: t.Description, Schema: t.InputSchema})
	}
	if no := b.convert(&c.Request); no != nil {
		return c, no
	}
	return c, paired(b.Messages)
}

// convert converts the messages to the model's form. The text of system messages among them is added to the system
// text of the request.
func (b *body) convert(to *model.Request) *refusal {
	for i := range b.Messages {
		m := &b.Messages[i]
		var no *refusal
		if m.blocks, no = contentBlocks(at("messages", i), m.Content); no != nil {
			return no
		}
		switch m.Role {
		case "user", "assistant":
		case "system":
			to.System += "\n" + joined(m.blocks)
			continue
		default:
			return invalid("%s.role: %s is none of user, assistant and system", at("messages", i), holdfast.Quote(m.Role))
		}
		if len(m.blocks) == 0 && i < len(b.Messages)-1 {
			return invalid("%s: content must be non-empty", at("messages", i))
		}
		out := model.Message{Role: model.Role(m.Role)}
		for j := range m.blocks {
			mb, no := m.blocks[j].convert(at(at("messages", i)+".content", j))
			if no != nil {
				return no
			}
			if mb.Type != "" && !(mb.Type == model.Text && m.Role == "user" && strings.HasPrefix(mb.Text, resume)) {
				out.Blocks = append(out.Blocks, mb)
			}
		}
		if n := len(to.Messages); len(out.Blocks) == 0 && m.Role == "user" && n > 0 {
			// The user's message only asks to resume an answer that was cut off. Drop that answer, so that the script's step is
			// carried out again.
			to.Messages = to.Messages[:n-1]
			continue
		}
		to.Messages = append(to.Messages, out)
	}
	return nil
}

// convert converts a block to the model's form. For a block of a type that the scripted model does not use, it returns
// the zero block.
func (b *block) convert(where string) (model.Block, *refusal) {
	switch b.Type {
	case "text":
		if b.Text == "" {
			return model.Block{}, invalid("%s: text content blocks must be non-empty", where)
		}
		return model.Block{Type: model.Text, Text: b.Text}, nil
	case "thinking":
		if b.Signature != Sign(b.Thinking) {
			return model.Block{}, invalid("%s: Invalid `signature` in `thinking` block", where)
		}
		return model.Block{Type: model.Thinking, Text: b.Thinking, Signature: b.Signature}, nil
	case "tool_use":
		if b.ID == "" || b.Name == "" {
			return model.Block{}, invalid("%s: id and name are required", where)
		}
		return model.Block{Type: model.ToolUse, ID: b.ID, Name: b.Name, Input: b.Input}, nil
	case "tool_result":
		if b.ToolUseID == "" {
			return model.Block{}, invalid("%s.tool_use_id: Field required", where)
		}
		inner, no := contentBlocks(where+".content", b.Content)
		return model.Block{Type: model.ToolResult, ID: b.ToolUseID, Text: joined(inner), IsError: b.IsError}, no
	case "":
		return model.Block{}, invalid("%s.type: Field required", where)
	}
	return model.Block{}, nil
}

// contentBlocks decodes content, which is a string or a list of blocks; nil if it is missing or empty.
func contentBlocks(where string, raw json.RawMessage) ([]block, *refusal) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if raw[0] == '"' {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			return nil, invalid("%s: invalid string", where)
		}
		if text == "" {
			return nil, nil
		}
		return []block{{Type: "text", Text: text}}, nil
	}
	var out []block
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, invalid("%s: Input should be a string or a list of content blocks", where)
	}
	return out, nil
}

func joined(blocks []block) string {
	var texts []string
	for i := range blocks {
		if blocks[i].Text != "" {
			texts = append(texts, blocks[i].Text)
		}
	}
	return strings.Join(texts, "\n")
}

// paired checks that each tool use has its result in the user's next message,
// and each result its use before it.
func paired(msgs []message) *refusal {
	var open map[string]bool
	asked := -1
	for i := range msgs {
		switch msgs[i].Role {
		case "assistant":
			if no := missing(asked, open); no != nil && (i == 0 || msgs[i-1].Role != "assistant") {
				return no
			}
			if i == 0 || msgs[i-1].Role != "assistant" {
				open = map[string]bool{}
			}
			asked = i
			for _, b := range msgs[i].blocks {
				if b.Type == "tool_use" {
					open[b.ID] = true
				}
			}
		case "user":
			for j, b := range msgs[i].blocks {
				if b.Type != "tool_result" {
					continue
				}
				if !open[b.ToolUseID] {
					return invalid("%s: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
						at(at("messages", i)+".content", j), b.ToolUseID)
				}
				delete(open, b.ToolUseID)
			}
		}
	}
	return missing(asked, open)
}

func missing(asked int, open map[string]bool) *refusal {
	for id := range open {
		return invalid("%s: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
			at("messages", asked), id)
	}
	return nil
}

// Sign returns the signature that the double gives a thinking block and expects back with it.
func Sign(thinking string) string {
	sum := sha256.Sum256([]byte("double thinking\x00" + thinking))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// userSession returns the session id that a client sends in its metadata, or "".
func userSession(userID string) string {
	var v struct {
		SessionID string `json:"session_id"`
	}
	_ = json.Unmarshal([]byte(userID), &v) // if userID is not JSON of this form, the id stays empty
	return v.SessionID
}
