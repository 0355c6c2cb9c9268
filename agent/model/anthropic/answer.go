package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
)

// maxAnswer is the greatest size of an answer, in bytes.
const maxAnswer = 32 << 20

// answer assembles an answer from the events of its stream.
type answer struct {
	yield func(model.Chunk, error) bool
	id    string

	usage holdfast.Usage
	stop  string
	// open is the block that is being received; nil between blocks.
	open  *model.Block
	index int64
	text  strings.Builder
	bytes int
}

// event processes one event. It returns false at the end of the answer or when the consumer
// stops, and an error if the stream is malformed.
func (a *answer) event(ev *sdk.MessageStreamEventUnion) (more bool, err error) {
	switch ev.Type {
	case "message_start":
		u := ev.Message.Usage
		a.usage = holdfast.Usage{
			InputTokens: u.InputTokens, OutputTokens: u.OutputTokens,
			CacheReadTokens: u.CacheReadInputTokens, CacheWriteTokens: u.CacheCreationInputTokens,
		}
	case "content_block_start":
		if a.open != nil {
			return false, fmt.Errorf("malformed stream from the model: content block %d begins before block %d has ended", ev.Index, a.index)
		}
		a.start(ev)
	case "content_block_delta":
		if a.open == nil || ev.Index != a.index {
			return false, fmt.Errorf("malformed stream from the model: a delta for content block %d, which is not the open one", ev.Index)
		}
		return a.delta(&ev.Delta)
	case "content_block_stop":
		if a.open == nil || ev.Index != a.index {
			return false, fmt.Errorf("malformed stream from the model: the end of content block %d, which is not the open one", ev.Index)
		}
		return a.end(), nil
	case "message_delta":
		a.stop = string(ev.Delta.StopReason)
		a.count(&ev.Usage)
	case "message_stop":
		if a.open != nil || a.stop == "" {
			return false, fmt.Errorf("malformed stream from the model: the message ends within a content block or without a stop reason")
		}
		a.yield(model.Chunk{Type: model.ChunkDone, StopReason: a.stop, Usage: a.usage, RequestID: a.id}, nil)
		return false, nil
	}
	return true, nil
}

// count stores the usage of an event, which replaces the earlier usage because it is cumulative. Fields that the event
// lacks keep their values.
func (a *answer) count(u *sdk.MessageDeltaUsage) {
	for _, f := range []struct {
		to *int64
		n  int64
	}{
		{&a.usage.InputTokens, u.InputTokens},
		{&a.usage.OutputTokens, u.OutputTokens},
		{&a.usage.CacheReadTokens, u.CacheReadInputTokens},
		{&a.usage.CacheWriteTokens, u.CacheCreationInputTokens},
	} {
		if f.n > 0 {
			*f.to = f.n
		}
	}
}

func (a *answer) start(ev *sdk.MessageStreamEventUnion) {
	a.index = ev.Index
	a.text.Reset()
	b := &ev.ContentBlock
	a.open = &model.Block{}
	switch b.Type {
	case "text":
		a.open.Type = model.Text
		a.text.WriteString(b.Text)
	case "thinking":
		a.open.Type, a.open.Signature = model.Thinking, b.Signature
		a.text.WriteString(b.Thinking)
	case "redacted_thinking":
		a.open.Type, a.open.Redacted, a.open.Signature = model.Thinking, true, b.Data
	case "tool_use":
		a.open.Type, a.open.ID, a.open.Name = model.ToolUse, b.ID, b.Name
		// In most streams the block begins with the input {}, and the pieces of the real input follow.
		if in, err := json.Marshal(b.Input); err == nil && string(in) != "{}" && string(in) != "null" {
			a.open.Input = in
		}
	}
}

func (a *answer) delta(d *sdk.MessageStreamEventUnionDelta) (bool, error) {
	a.bytes += len(d.Text) + len(d.Thinking) + len(d.PartialJSON) + len(d.Signature)
	if a.bytes > maxAnswer {
		return false, fmt.Errorf("the model's answer is over %d bytes", maxAnswer)
	}
	switch d.Type {
	case "text_delta":
		a.text.WriteString(d.Text)
		return a.yield(model.Chunk{Type: model.ChunkText, Delta: d.Text}, nil), nil
	case "thinking_delta":
		a.text.WriteString(d.Thinking)
		return a.yield(model.Chunk{Type: model.ChunkThinking, Delta: d.Thinking}, nil), nil
	case "signature_delta":
		a.open.Signature += d.Signature
	case "input_json_delta":
		a.text.WriteString(d.PartialJSON)
	}
	return true, nil
}

// end yields the open block, unless its type is unknown.
func (a *answer) end() bool {
	b := a.open
	a.open = nil
	switch {
	case b.Type == "":
		return true
	case b.Type != model.ToolUse:
		b.Text = a.text.String()
	case a.text.Len() > 0:
		// The tool's input is passed on unchecked: the agent loop refuses invalid JSON and tells the model.
		b.Input = json.RawMessage(a.text.String())
	}
	return a.yield(model.Chunk{Type: model.ChunkBlock, Block: *b}, nil)
}

// wireError parses {"type":"error","error":{"type":…,"message":…}}. It returns nothing of any
// other text, which may be a whole web page.
func wireError(raw string) (kind, message string) {
	var e struct {
		Error struct{ Type, Message string }
	}
	if json.Unmarshal([]byte(raw), &e) != nil {
		return "", ""
	}
	return e.Error.Type, e.Error.Message
}
