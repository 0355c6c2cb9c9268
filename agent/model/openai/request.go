package openai

import (
	"encoding/json"
	"strings"

	"github.com/holdfast-run/holdfast/agent/model"
)

type body struct {
	Model     string    `json:"model"`
	Messages  []message `json:"messages"`
	Tools     []tool    `json:"tools,omitempty"`
	MaxTokens int       `json:"max_tokens,omitempty"`
	// OpenAI's newer models require max_completion_tokens; other servers know only max_tokens.
	MaxCompletionTokens int           `json:"max_completion_tokens,omitempty"`
	Stream              bool          `json:"stream"`
	StreamOptions       streamOptions `json:"stream_options"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type message struct {
	Role       string  `json:"role"`
	Content    *string `json:"content"`
	ToolCalls  []call  `json:"tool_calls,omitempty"`
	ToolCallID string  `json:"tool_call_id,omitempty"`
}

type call struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type tool struct {
	Type     string   `json:"type"`
	Function toolSpec `json:"function"`
}

type toolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
}

// body returns the API's form of a request. It depends only on the conversation, so that servers
// with a prefix cache find the beginning of the previous request.
func (m *Model) body(req *model.Request) body {
	b := body{Model: req.Model, Stream: true, StreamOptions: streamOptions{IncludeUsage: true}}
	if b.MaxTokens = req.MaxTokens; m.own {
		b.MaxTokens, b.MaxCompletionTokens = 0, req.MaxTokens
	}
	if req.System != "" {
		b.Messages = append(b.Messages, message{Role: "system", Content: &req.System})
	}
	for i := range req.Messages {
		b.Messages = append(b.Messages, messages(&req.Messages[i])...)
	}
	for _, t := range req.Tools {
		schema := t.Schema
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		b.Tools = append(b.Tools, tool{Type: "function", Function: toolSpec{Name: t.Name, Description: t.Description, Parameters: schema}})
	}
	return b
}

// messages returns the API's messages for one message of the conversation: each tool result is a
// separate message, directly after the calls. Thinking is not sent back.
func messages(msg *model.Message) []message {
	var out []message
	var texts []string
	said := message{Role: string(msg.Role)}
	for i := range msg.Blocks {
		b := &msg.Blocks[i]
		switch b.Type {
		case model.Text:
			texts = append(texts, b.Text)
		case model.ToolUse:
			input := string(b.Input)
			if input == "" {
				input = "{}"
			}
			said.ToolCalls = append(said.ToolCalls, call{ID: b.ID, Type: "function", Function: function{Name: b.Name, Arguments: input}})
		case model.ToolResult:
			text := b.Text
			out = append(out, message{Role: "tool", ToolCallID: b.ID, Content: &text})
		}
	}
	if text := strings.Join(texts, "\n\n"); text != "" {
		said.Content = &text
	}
	if said.Content != nil || len(said.ToolCalls) > 0 {
		out = append(out, said)
	}
	return out
}
