package anthropic

import (
	"encoding/json"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/holdfast-run/holdfast/agent/model"
)

// params returns the API's form of a request. It sets cache markers at the end of the system text,
// which also covers the tools before it, or at the last tool if there is no system text, and at the
// ends of the last two user messages: the older of these finds the part that the previous request
// cached. Apart from the markers, the common part of two requests is identical.
func (m *Model) params(req *model.Request) sdk.MessageNewParams {
	p := sdk.MessageNewParams{Model: sdk.Model(req.Model), MaxTokens: int64(req.MaxTokens)}
	if p.MaxTokens <= 0 {
		p.MaxTokens = defaultMaxTokens
	}
	switch t := m.cfg.Thinking; {
	case t.Adaptive:
		p.Thinking.OfAdaptive = &sdk.ThinkingConfigAdaptiveParam{}
	case t.Tokens > 0:
		// The limit of the answer includes thinking. Thinking gets at most what the limit leaves
		// after leastAnswer, and is turned off if that is less than the API accepts.
		if n := min(t.Tokens, p.MaxTokens-leastAnswer); n >= leastThinking {
			p.Thinking = sdk.ThinkingConfigParamOfEnabled(n)
		}
	}
	if req.System != "" {
		p.System = []sdk.TextBlockParam{{Text: req.System, CacheControl: sdk.NewCacheControlEphemeralParam()}}
	}
	for i := range req.Tools {
		p.Tools = append(p.Tools, tool(&req.Tools[i]))
	}
	for i := range req.Messages {
		if msg := message(&req.Messages[i]); len(msg.Content) > 0 {
			p.Messages = append(p.Messages, msg)
		}
	}
	if req.System == "" && len(p.Tools) > 0 {
		p.Tools[len(p.Tools)-1].OfTool.CacheControl = sdk.NewCacheControlEphemeralParam()
	}
	mark(p.Messages, 2)
	return p
}

// tool returns the API's form of a tool, with the bytes of its schema unchanged.
func tool(t *model.Tool) sdk.ToolUnionParam {
	schema := t.Schema
	if len(schema) == 0 {
		schema = json.RawMessage(`{"type":"object"}`)
	}
	return sdk.ToolUnionParam{OfTool: &sdk.ToolParam{
		Name: t.Name, Description: sdk.String(t.Description), InputSchema: param.Override[sdk.ToolInputSchemaParam](schema),
	}}
}

func message(msg *model.Message) sdk.MessageParam {
	out := sdk.MessageParam{Role: sdk.MessageParamRole(msg.Role)}
	for i := range msg.Blocks {
		b := &msg.Blocks[i]
		switch b.Type {
		case model.Text:
			if strings.TrimSpace(b.Text) != "" {
				out.Content = append(out.Content, sdk.NewTextBlock(b.Text))
			}
		case model.Thinking:
			switch {
			case b.Redacted:
				out.Content = append(out.Content, sdk.NewRedactedThinkingBlock(b.Signature))
			case b.Signature != "":
				out.Content = append(out.Content, sdk.NewThinkingBlock(b.Signature, b.Text))
			}
			// Thinking without a signature comes from another provider and is left out.
		case model.ToolUse:
			input := b.Input
			if len(input) == 0 {
				input = json.RawMessage(`{}`)
			}
			out.Content = append(out.Content, sdk.NewToolUseBlock(useID(b.ID), input, b.Name))
		case model.ToolResult:
			out.Content = append(out.Content, result(b))
		}
	}
	return out
}

func result(b *model.Block) sdk.ContentBlockParamUnion {
	r := sdk.ToolResultBlockParam{ToolUseID: useID(b.ID)}
	if b.IsError {
		r.IsError = sdk.Bool(true)
	}
	if b.Text != "" {
		r.Content = []sdk.ToolResultBlockParamContentUnion{{OfText: &sdk.TextBlockParam{Text: b.Text}}}
	}
	return sdk.ContentBlockParamUnion{OfToolResult: &r}
}

// useID returns a tool use id, which may come from any provider, with only characters that this
// API accepts.
func useID(id string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, id)
}

// mark sets cache markers at the ends of the last n user messages.
func mark(msgs []sdk.MessageParam, n int) {
	for i := len(msgs) - 1; i >= 0 && n > 0; i-- {
		if msgs[i].Role != sdk.MessageParamRoleUser {
			continue
		}
		last := &msgs[i].Content[len(msgs[i].Content)-1]
		switch {
		case last.OfText != nil:
			last.OfText.CacheControl = sdk.NewCacheControlEphemeralParam()
		case last.OfToolResult != nil:
			last.OfToolResult.CacheControl = sdk.NewCacheControlEphemeralParam()
		}
		n--
	}
}
