package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/remote"
)

const (
	// maxAnswer is the greatest size of an answer in bytes, maxCalls its greatest number of tool
	// calls.
	maxAnswer = 32 << 20
	maxCalls  = 128
)

// answer assembles an answer from the chunks of its stream.
type answer struct {
	yield func(model.Chunk, error) bool
	req   *model.Request
	id    string

	// begun is true once the server has accepted the request, gone once the consumer has stopped,
	// done once the stream said that it is complete.
	begun, gone, done bool
	stop              string
	usage             *wireUsage
	text, thinking    strings.Builder
	calls             []*pending
	bytes             int
}

// pending is a tool call that is being received.
type pending struct {
	index    *int64
	id, name string
	args     bytes.Buffer
}

type wireChunk struct {
	Choices []struct {
		Index        int64      `json:"index"`
		Delta        *wireDelta `json:"delta"`
		Message      *wireDelta `json:"message"`
		FinishReason string     `json:"finish_reason"`
	} `json:"choices"`
	Usage *wireUsage `json:"usage"`
	Error *wireError `json:"error"`
}

type wireDelta struct {
	Content          *string    `json:"content"`
	Refusal          *string    `json:"refusal"`
	ReasoningContent *string    `json:"reasoning_content"`
	Reasoning        *string    `json:"reasoning"`
	ToolCalls        []wireCall `json:"tool_calls"`
}

type wireCall struct {
	Index    *int64 `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name string `json:"name"`
		// Arguments is JSON in a string; some servers send the object itself.
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

type wireUsage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	Details          struct {
		CachedTokens int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// wireError is an error of the server, sent as an object or as a plain string.
type wireError struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Code    any    `json:"code"`
}

func (e *wireError) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &e.Message); err == nil {
		return nil
	}
	type plain wireError
	return json.Unmarshal(b, (*plain)(e))
}

// kind returns the error's code if that is a word, else its type.
func (e *wireError) kind() string {
	if s, ok := e.Code.(string); ok && s != "" {
		return s
	}
	return e.Type
}

// status returns the error's code if that is a number from 400 to 599, else 500.
func (e *wireError) status() int {
	if n, ok := e.Code.(float64); ok && n >= 400 && n < 600 {
		return int(n)
	}
	return 500
}

// chunk processes one event of the stream.
func (a *answer) chunk(data []byte) error {
	var c wireChunk
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("an event in the model server's stream is not valid JSON: %s", holdfast.Quote(string(data)))
	}
	if c.Error != nil {
		return remote.Status(c.Error.status(), nil, c.Error.kind(), c.Error.Message, time.Time{})
	}
	if c.Usage != nil {
		a.usage = c.Usage
	}
	for i := range c.Choices {
		ch := &c.Choices[i]
		if ch.Index != 0 {
			continue
		}
		d := ch.Delta
		if d == nil {
			d = ch.Message
		}
		if d != nil {
			if err := a.delta(d); err != nil || a.gone {
				return err
			}
		}
		if ch.FinishReason != "" {
			a.stop = ch.FinishReason
		}
	}
	return nil
}

func (a *answer) delta(d *wireDelta) error {
	for _, s := range []*string{d.ReasoningContent, d.Reasoning} {
		if s != nil && *s != "" {
			a.grow(&a.thinking, model.ChunkThinking, *s)
			break
		}
	}
	for _, s := range []*string{d.Content, d.Refusal} {
		if s != nil && *s != "" {
			a.grow(&a.text, model.ChunkText, *s)
		}
	}
	for i := range d.ToolCalls {
		if err := a.call(&d.ToolCalls[i]); err != nil {
			return err
		}
	}
	if a.bytes > maxAnswer {
		return fmt.Errorf("the model's answer is over %d bytes", maxAnswer)
	}
	return nil
}

func (a *answer) grow(to *strings.Builder, typ model.ChunkType, s string) {
	a.bytes += len(s)
	to.WriteString(s)
	a.gone = a.gone || !a.yield(model.Chunk{Type: typ, Delta: s}, nil)
}

// call adds a piece to a tool call. With an index, the piece belongs to the newest call with that
// index, unless it has another id (some servers give every call the same index). Without an
// index it belongs to the last call, unless a new id or a name begins another one.
func (a *answer) call(w *wireCall) error {
	var p *pending
	for _, c := range a.calls {
		another := w.ID != "" && c.id != "" && w.ID != c.id && w.Function.Name != ""
		if w.Index != nil && c.index != nil && *c.index == *w.Index && !another {
			p = c
		}
	}
	if n := len(a.calls); p == nil && w.Index == nil && n > 0 {
		if last := a.calls[n-1]; w.Function.Name == "" && (w.ID == "" || w.ID == last.id) {
			p = last
		}
	}
	if p == nil {
		if len(a.calls) == maxCalls {
			return fmt.Errorf("the model's answer has more than %d tool calls", maxCalls)
		}
		p = &pending{index: w.Index}
		a.calls = append(a.calls, p)
	}
	if w.ID != "" {
		p.id = w.ID
	}
	if w.Function.Name != "" {
		p.name = w.Function.Name
	}
	args := []byte(w.Function.Arguments)
	var s string
	switch {
	case len(args) == 0 || string(args) == "null":
		args = nil
	case json.Unmarshal(args, &s) == nil:
		args = []byte(s)
	}
	a.bytes += len(args) + len(w.ID) + len(w.Function.Name)
	p.args.Write(args)
	return nil
}

// finish yields the complete blocks and the final ChunkDone.
func (a *answer) finish() error {
	if !a.done && a.stop == "" {
		return errors.New("the stream ended before the model's answer was complete")
	}
	if a.thinking.Len() > 0 && !a.yield(model.Chunk{Type: model.ChunkBlock, Block: model.Block{Type: model.Thinking, Text: a.thinking.String()}}, nil) {
		return nil
	}
	if a.text.Len() > 0 && !a.yield(model.Chunk{Type: model.ChunkBlock, Block: model.Block{Type: model.Text, Text: a.text.String()}}, nil) {
		return nil
	}
	for i, c := range a.calls {
		if c.id == "" {
			// Make up an id from the call's position in the conversation, so that it is unique.
			c.id = fmt.Sprintf("call_%d_%d", len(a.req.Messages), i)
		}
		b := model.Block{Type: model.ToolUse, ID: c.id, Name: c.name, Input: json.RawMessage(bytes.Clone(c.args.Bytes()))}
		if !a.yield(model.Chunk{Type: model.ChunkBlock, Block: b}, nil) {
			return nil
		}
	}
	a.yield(model.Chunk{Type: model.ChunkDone, StopReason: a.reason(), Usage: a.spent(), RequestID: a.id}, nil)
	return nil
}

func (a *answer) reason() string {
	switch {
	case len(a.calls) > 0:
		return "tool_use"
	case a.stop == "length":
		return "max_tokens"
	case a.stop == "content_filter":
		return "refusal"
	}
	return "end_turn"
}

// spent returns the usage that the server reported. If it reported none but accepted the request,
// the usage is estimated from the number of bytes.
func (a *answer) spent() holdfast.Usage {
	switch {
	case a.usage != nil:
		cached := min(max(a.usage.Details.CachedTokens, 0), max(a.usage.PromptTokens, 0))
		return holdfast.Usage{
			InputTokens: max(a.usage.PromptTokens, 0) - cached, OutputTokens: max(a.usage.CompletionTokens, 0), CacheReadTokens: cached,
		}
	case a.begun:
		return holdfast.Usage{InputTokens: a.req.Bytes() / 4, OutputTokens: int64(a.bytes / 4)}
	}
	return holdfast.Usage{}
}
