package loop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
)

// reply is an answer of the model, or what is known of an answer that failed.
type reply struct {
	blocks []model.Block
	uses   []Use
	stop   string
	usage  holdfast.Usage
	// shown is true if deltas of the answer were sent to live readers. first is the time at which its first
	// chunk came.
	shown bool
	first time.Time
	// id is the provider's id of the request. request is the model.request event of the call; nil for a model
	// that is not called over the network.
	id      string
	request *holdfast.ModelRequest
}

// stream makes one model call and sends deltas of the answer to live readers as it arrives. With an
// error, at most shown and first of the reply are set.
func (k *caller) stream(ctx context.Context, req *model.Request) (a reply, err error) {
	defer func() {
		if p := recover(); p != nil {
			a, err = reply{shown: a.shown}, holdfast.Errorf(holdfast.KindInternal, "model", "the model provider panicked: %v", p)
		}
	}()
	done := false
	for chunk, err := range k.loop.Provider.Stream(ctx, *req) {
		if err != nil {
			return reply{shown: a.shown, first: a.first}, err
		}
		if k.provider != "" && a.first.IsZero() {
			a.first = k.loop.Now()
		}
		switch chunk.Type {
		case model.ChunkText:
			a.shown = true
			k.rec.Delta(holdfast.DeltaText, holdfast.TextDelta{Text: chunk.Delta})
		case model.ChunkThinking:
			a.shown = true
			k.rec.Delta(holdfast.DeltaThinking, holdfast.TextDelta{Text: chunk.Delta})
		case model.ChunkBlock:
			a.take(chunk.Block)
		case model.ChunkDone:
			a.stop, a.usage, a.id, done = chunk.StopReason, chunk.Usage, chunk.RequestID, true
		}
		if ctx.Err() != nil {
			return reply{shown: a.shown, first: a.first}, ctx.Err()
		}
	}
	if !done {
		return reply{shown: a.shown, first: a.first}, &model.Failure{Class: "cut", Retryable: true, Message: "the provider's stream ended in the middle of the answer"}
	}
	return a, nil
}

// take adds a complete block to the reply. It replaces invalid text and ids, so that the block can be
// recorded and sent to the model again.
func (a *reply) take(b model.Block) {
	switch b.Type {
	case model.Text, model.Thinking:
		b.Text = valid(b.Text)
		if b.Text == "" && b.Signature == "" {
			return
		}
	case model.ToolUse:
		u := Use{ID: valid(b.ID), Name: valid(b.Name), State: Requested}
		for u.ID == "" || a.has(u.ID) {
			u.ID = fmt.Sprintf("%s-%d", u.ID, len(a.uses)+1)
		}
		var bad string
		if u.Input, bad = objectOf(b.Input); bad != "" {
			u.Result = answerTo(u.ID, bad, true)
		}
		b = model.Block{Type: model.ToolUse, ID: u.ID, Name: u.Name, Input: u.Input}
		a.uses = append(a.uses, u)
	default:
		return
	}
	a.blocks = append(a.blocks, b)
}

func (a *reply) has(id string) bool {
	for i := range a.uses {
		if a.uses[i].ID == id {
			return true
		}
	}
	return false
}

// text returns the answer's text blocks, joined by line breaks.
func (a *reply) text() string {
	var parts []string
	for i := range a.blocks {
		if a.blocks[i].Type == model.Text {
			parts = append(parts, a.blocks[i].Text)
		}
	}
	return strings.Join(parts, "\n")
}

// thinksBetween reports whether a thinking block follows a block of another kind. Then the positions of the
// thinking blocks must be recorded, because they must be sent back at the same positions.
func (a *reply) thinksBetween() bool {
	other := false
	for i := range a.blocks {
		thinks := a.blocks[i].Type == model.Thinking
		if thinks && other {
			return true
		}
		other = other || !thinks
	}
	return false
}

// entries returns the events of the answer: model.request, thinking, message.assistant,
// tool.requested.
func (a *reply) entries(c *Conversation) []Entry {
	out := make([]Entry, 0, len(a.blocks)+2)
	if a.request != nil {
		out = append(out, Entry{Type: holdfast.EventModelRequest, Data: *a.request})
	}
	msg := holdfast.AssistantMessage{
		Parts: make([]holdfast.Part, 0, len(a.blocks)), Seen: c.Seen, StopReason: a.stop, Model: c.Model, Usage: a.usage,
	}
	between := a.thinksBetween()
	for i := range a.blocks {
		switch b := &a.blocks[i]; b.Type {
		case model.Thinking:
			out = append(out, Entry{Type: holdfast.EventThinking, Data: holdfast.Thinking{Text: b.Text, Signature: b.Signature, Redacted: b.Redacted}})
			if between {
				msg.Parts = append(msg.Parts, holdfast.Part{Type: holdfast.PartThinking})
			}
		case model.Text:
			msg.Parts = append(msg.Parts, holdfast.Part{Type: holdfast.PartText, Text: b.Text})
		case model.ToolUse:
			msg.Parts = append(msg.Parts, holdfast.Part{Type: holdfast.PartToolUse, ToolUseID: b.ID})
		}
	}
	out = append(out, Entry{Type: holdfast.EventMessageAssistant, Data: msg})
	for i := range a.uses {
		u := &a.uses[i]
		out = append(out, Entry{
			Type: holdfast.EventToolRequested,
			Data: holdfast.ToolRequested{ToolUseID: u.ID, Name: u.Name, Input: u.Input},
		})
	}
	return out
}

// objectOf returns a tool's input as a compact JSON object; an empty input becomes {}. An input that is
// not an object is wrapped in one, and the second result says what is wrong with the input.
func objectOf(in json.RawMessage) (json.RawMessage, string) {
	trimmed := bytes.TrimSpace(in)
	if len(trimmed) == 0 {
		return json.RawMessage("{}"), ""
	}
	var buf bytes.Buffer
	if !utf8.Valid(trimmed) || json.Compact(&buf, trimmed) != nil {
		text, _ := json.Marshal(valid(string(trimmed)))
		return json.RawMessage(`{"invalid_json":` + string(text) + `}`), "the input is not JSON: " + holdfast.Quote(string(trimmed))
	}
	if trimmed[0] != '{' {
		return json.RawMessage(`{"invalid_input":` + buf.String() + `}`), "the input is not a JSON object: " + holdfast.Quote(string(trimmed))
	}
	return buf.Bytes(), ""
}

func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
