package anthropic

import (
	"encoding/json"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/holdfast-run/holdfast/agent/model"
)

// params is a request on the wire. Cache markers stand at the end of the system
// text, which the tools come before, and at the ends of the last two messages of
// the user: the older one finds what the former request wrote, however much was
// added since. They are all that differs in what two requests have in common.
func (m *Model) params(req *model.Request) sdk.MessageNewParams {
	p := sdk.MessageNewParams{Model: sdk.Model(req.Model), MaxTokens: int64(req.MaxTokens)}
	if p.MaxTokens <= 0 {
		p.MaxTokens = defaultMaxTokens
	}
	switch t := m.cfg.Thinking; {
	case t.Adaptive:
		p.Thinking.OfAdaptive = &sdk.ThinkingConfigAdaptiveParam{}
	case t.Tokens > 0:
		// The answer's bound counts thinking too, and budgets are reserved by it: thinking
		// has what the bound leaves, which is nothing below the least that the API takes.
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

// tool keeps the schema's bytes as they are.
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
			// Thinking without a signature is another provider's.
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

// useID spells an id of any provider in the letters that this one takes.
func useID(id string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, id)
}

// mark puts cache markers at the ends of the last n messages of the user.
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
