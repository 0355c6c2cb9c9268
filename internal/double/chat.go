package double

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
)

// Quirk is a way in which an OpenAI-compatible server differs from the original API.
type Quirk string

// The quirks of existing servers. All except NoStream change streams only.
const (
	// NoUsage omits usage, NoIDs the ids of tool calls, NoDone the final [DONE].
	NoUsage Quirk = "no-usage"
	NoIDs   Quirk = "no-ids"
	NoDone  Quirk = "no-done"
	// NoIndex omits the index of tool calls, SameIndex sends 0 for all of them. WholeArguments and
	// NoIndex send arguments in one piece, and ObjectArguments as one object instead of a string.
	NoIndex         Quirk = "no-index"
	SameIndex       Quirk = "same-index"
	WholeArguments  Quirk = "whole-arguments"
	ObjectArguments Quirk = "object-arguments"
	// NoStream answers with a whole message even if a stream was requested.
	NoStream Quirk = "no-stream"
)

type chatBody struct {
	Model    string        `json:"model"`
	Messages []chatMessage `json:"messages"`
	Tools    []struct {
		Type     string `json:"type"`
		Function struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
	Stream        bool `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type chatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// text returns the content, which is a string or a list of parts, as text.
func (m *chatMessage) text() string {
	var s string
	if json.Unmarshal(m.Content, &s) == nil {
		return s
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(m.Content, &parts)
	for _, p := range parts {
		s += p.Text
	}
	return s
}

// request converts a body to the scripted model's form. It fails if a message that is not a tool result follows
// tool calls that have no result yet, as the original API demands.
func (b *chatBody) request() (model.Request, error) {
	r := model.Request{Model: b.Model}
	if b.Model == "" || len(b.Messages) == 0 {
		return r, errors.New("you must provide a model and messages")
	}
	for _, t := range b.Tools {
		if t.Type != "function" || t.Function.Name == "" {
			return r, errors.New("tools: each tool needs the type \"function\" and a name")
		}
		r.Tools = append(r.Tools, model.Tool{Name: t.Function.Name, Description: t.Function.Description, Schema: t.Function.Parameters})
	}
	var open []string
	for i := range b.Messages {
		m := &b.Messages[i]
		if m.Role != "tool" && len(open) > 0 {
			return r, fmt.Errorf("an assistant message with 'tool_calls' must be followed by tool messages; missing %q", open)
		}
		switch m.Role {
		case "system", "developer":
			r.System += m.text()
		case "user":
			r.Messages = joinUser(r.Messages, model.Block{Type: model.Text, Text: m.text()})
		case "tool":
			at := slices.Index(open, m.ToolCallID)
			if at < 0 {
				return r, fmt.Errorf("tool_call_id %q is not the id of a tool call without a result", m.ToolCallID)
			}
			open = slices.Delete(open, at, at+1)
			r.Messages = joinUser(r.Messages, model.Block{Type: model.ToolResult, ID: m.ToolCallID, Text: m.text()})
		case "assistant":
			msg := model.Message{Role: model.Assistant}
			if s := m.text(); s != "" {
				msg.Blocks = append(msg.Blocks, model.Block{Type: model.Text, Text: s})
			}
			for _, c := range m.ToolCalls {
				if !json.Valid([]byte(c.Function.Arguments)) {
					return r, fmt.Errorf("the arguments of tool call %q are not JSON", c.ID)
				}
				open = append(open, c.ID)
				msg.Blocks = append(msg.Blocks, model.Block{Type: model.ToolUse, ID: c.ID, Name: c.Function.Name, Input: json.RawMessage(c.Function.Arguments)})
			}
			r.Messages = append(r.Messages, msg)
		default:
			return r, fmt.Errorf("the role %q is not one of 'system', 'assistant', 'user', 'tool'", m.Role)
		}
	}
	return r, nil
}

func joinUser(msgs []model.Message, b model.Block) []model.Message {
	if n := len(msgs); n > 0 && msgs[n-1].Role == model.User {
		msgs[n-1].Blocks = append(msgs[n-1].Blocks, b)
		return msgs
	}
	return append(msgs, model.Message{Role: model.User, Blocks: []model.Block{b}})
}

// chatRefuse answers with an error in the form of the chat completions API.
func chatRefuse(w http.ResponseWriter, r *refusal) {
	if r.retryAfter > 0 {
		w.Header().Set("retry-after", fmt.Sprint(r.retryAfter))
	}
	writeJSON(w, r.status, chatError(r))
}

func chatError(r *refusal) obj {
	return obj{"error": obj{"message": r.message, "type": r.typ, "param": nil, "code": nil}}
}

func (s *Server) chat(w http.ResponseWriter, r *http.Request, raw []byte) {
	w.Header().Set("x-request-id", w.Header().Get("request-id"))
	var b chatBody
	if err := json.Unmarshal(raw, &b); err != nil {
		chatRefuse(w, invalid("We could not parse the JSON body of your request."))
		return
	}
	req, err := b.request()
	if err != nil {
		chatRefuse(w, invalid("%s", err.Error()))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	a := &chatAnswer{
		w: w, id: s.id("chatcmpl-"), model: b.Model, quirks: s.cfg.Quirks,
		usage: b.StreamOptions.IncludeUsage && !slices.Contains(s.cfg.Quirks, NoUsage), input: scripted.Tokens(&req),
	}
	if b.Stream && !a.has(NoStream) {
		a.stream(s.model.Stream(ctx, req))
		return
	}
	a.whole(s.model.Stream(ctx, req))
}

// chatAnswer writes one answer in the form of the chat completions API.
type chatAnswer struct {
	w      http.ResponseWriter
	id     string
	model  string
	quirks []Quirk
	usage  bool
	input  int64

	begun, gone bool
	calls       int
	shown       bool
}

func (a *chatAnswer) has(q Quirk) bool { return slices.Contains(a.quirks, q) }

func (a *chatAnswer) stream(chunks iter.Seq2[model.Chunk, error]) {
	for c, err := range chunks {
		if err != nil {
			a.failed(err)
			return
		}
		switch c.Type {
		case model.ChunkText:
			a.shown = true
			a.delta(obj{"content": c.Delta}, nil)
		case model.ChunkThinking:
			a.delta(obj{"reasoning_content": c.Delta}, nil)
		case model.ChunkBlock:
			a.block(&c.Block)
		case model.ChunkDone:
			a.delta(obj{}, reasonOf(c.StopReason))
			if a.usage {
				a.frame(obj{"choices": []any{}, "usage": usageOf(&c)})
			}
			if !a.has(NoDone) {
				a.write("data: [DONE]\n\n")
			}
		}
		if a.gone {
			return
		}
	}
}

func (a *chatAnswer) block(b *model.Block) {
	switch b.Type {
	case model.Text:
		if !a.shown {
			a.delta(obj{"content": b.Text}, nil)
		}
	case model.ToolUse:
		pieces := halves(string(b.Input))
		if a.has(WholeArguments) || a.has(ObjectArguments) || a.has(NoIndex) {
			pieces = []string{string(b.Input)}
		}
		for i, p := range pieces {
			a.call(b, p, i == 0)
		}
		a.calls++
	}
}

func (a *chatAnswer) call(b *model.Block, args string, first bool) {
	f := obj{"arguments": args}
	if a.has(ObjectArguments) {
		f["arguments"] = json.RawMessage(args)
	}
	c := obj{"index": a.calls, "function": f}
	switch {
	case a.has(NoIndex):
		delete(c, "index")
	case a.has(SameIndex):
		c["index"] = 0
	}
	if first {
		c["type"], f["name"] = "function", b.Name
		if !a.has(NoIDs) {
			c["id"] = b.ID
		}
	}
	a.delta(obj{"tool_calls": []any{c}}, nil)
}

func (a *chatAnswer) failed(err error) {
	no := refusalOf(err)
	switch {
	case no == nil:
		a.begin()
		_ = http.NewResponseController(a.w).Flush()
		panic(http.ErrAbortHandler)
	case !a.begun:
		chatRefuse(a.w, no)
	default:
		raw, _ := json.Marshal(chatError(no))
		a.write("data: " + string(raw) + "\n\n")
	}
}

func (a *chatAnswer) begin() {
	if a.begun {
		return
	}
	a.begun = true
	a.w.Header().Set("content-type", "text/event-stream; charset=utf-8")
	a.w.WriteHeader(http.StatusOK)
	a.frame(obj{"choices": []any{obj{"index": 0, "delta": obj{"role": "assistant", "content": ""}, "finish_reason": nil}}})
}

func (a *chatAnswer) delta(d obj, finish any) {
	a.begin()
	a.frame(obj{"choices": []any{obj{"index": 0, "delta": d, "finish_reason": finish}}})
}

func (a *chatAnswer) frame(o obj) {
	o["id"], o["object"], o["model"] = a.id, "chat.completion.chunk", a.model
	raw, err := json.Marshal(o)
	if err != nil {
		a.gone = true
		return
	}
	a.write("data: " + string(raw) + "\n\n")
}

func (a *chatAnswer) write(s string) {
	if _, err := a.w.Write([]byte(s)); err != nil {
		a.gone = true
	}
	if err := http.NewResponseController(a.w).Flush(); err != nil {
		a.gone = true
	}
}

// whole sends the answer as one JSON message, not as a stream.
func (a *chatAnswer) whole(chunks iter.Seq2[model.Chunk, error]) {
	var text strings.Builder
	calls := []any{}
	for c, err := range chunks {
		switch {
		case err != nil:
			chatRefuse(a.w, mustRefuse(err))
			return
		case c.Type == model.ChunkBlock && c.Block.Type == model.Text:
			text.WriteString(c.Block.Text)
		case c.Type == model.ChunkBlock && c.Block.Type == model.ToolUse:
			calls = append(calls, obj{"id": c.Block.ID, "type": "function", "function": obj{"name": c.Block.Name, "arguments": string(c.Block.Input)}})
		case c.Type == model.ChunkDone:
			msg := obj{"role": "assistant", "content": text.String(), "tool_calls": calls}
			writeJSON(a.w, http.StatusOK, obj{
				"id": a.id, "object": "chat.completion", "model": a.model, "usage": usageOf(&c),
				"choices": []any{obj{"index": 0, "message": msg, "finish_reason": reasonOf(c.StopReason)}},
			})
		}
	}
}

func usageOf(c *model.Chunk) obj {
	u := c.Usage
	prompt := holdfast.Sum(u.InputTokens, u.CacheReadTokens)
	return obj{
		"prompt_tokens": prompt, "completion_tokens": u.OutputTokens, "total_tokens": holdfast.Sum(prompt, u.OutputTokens),
		"prompt_tokens_details": obj{"cached_tokens": u.CacheReadTokens},
	}
}

func reasonOf(stop string) string {
	switch stop {
	case "tool_use":
		return "tool_calls"
	case "max_tokens":
		return "length"
	}
	return "stop"
}
