package double

import (
	"encoding/json"
	"iter"
	"net/http"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/internal/clip"
)

// answer writes one answer of the model over the wire format.
type answer struct {
	w     http.ResponseWriter
	id    string
	model string
	input int64

	begun bool
	// index is the index of the current block; open is the type of the block that is being written.
	index int
	open  model.BlockType
	gone  bool
}

type obj map[string]any

func (a *answer) usage(u holdfast.Usage) obj {
	return obj{
		"input_tokens": u.InputTokens, "output_tokens": u.OutputTokens,
		"cache_creation_input_tokens": u.CacheWriteTokens, "cache_read_input_tokens": u.CacheReadTokens,
	}
}

func (a *answer) message(content []any, stop any, u holdfast.Usage) obj {
	return obj{
		"id": a.id, "type": "message", "role": "assistant", "model": a.model, "content": content,
		"stop_reason": stop, "stop_sequence": nil, "usage": a.usage(u),
	}
}

// stream writes server-sent events as the chunks come. A failure before the first chunk is
// answered with an error status.
func (a *answer) stream(chunks iter.Seq2[model.Chunk, error]) {
	for c, err := range chunks {
		if err != nil {
			a.failed(err)
			return
		}
		a.begin()
		switch c.Type {
		case model.ChunkText:
			a.delta(model.Text, c.Delta)
		case model.ChunkThinking:
			a.delta(model.Thinking, c.Delta)
		case model.ChunkBlock:
			a.block(c.Block)
		case model.ChunkDone:
			a.event("message_delta", obj{
				"delta": obj{"stop_reason": c.StopReason, "stop_sequence": nil}, "usage": a.usage(c.Usage),
			})
			a.event("message_stop", obj{})
		}
		if a.gone {
			return // clients interrupt an answer by dropping the connection
		}
	}
}

func (a *answer) begin() {
	if a.begun {
		return
	}
	a.begun = true
	a.w.Header().Set("content-type", "text/event-stream; charset=utf-8")
	a.w.Header().Set("cache-control", "no-cache")
	a.w.WriteHeader(http.StatusOK)
	a.event("message_start", obj{"message": a.message([]any{}, nil, holdfast.Usage{InputTokens: a.input, OutputTokens: 1})})
	a.event("ping", obj{})
}

// failed ends the answer after an error: with an error status if nothing was sent yet, else with
// an error event. A cut or a stall drops the connection.
func (a *answer) failed(err error) {
	no := refusalOf(err)
	switch {
	case no == nil:
		a.begin()
		a.flush()
		panic(http.ErrAbortHandler)
	case !a.begun:
		refuse(a.w, no)
	default:
		a.event("error", no.envelope(a.w.Header().Get("request-id")))
	}
}

func (a *answer) delta(t model.BlockType, text string) {
	a.start(t, nil)
	if t == model.Thinking {
		a.blockDelta(obj{"type": "thinking_delta", "thinking": text})
		return
	}
	a.blockDelta(obj{"type": "text_delta", "text": text})
}

// block writes the content of a block, unless it was sent in deltas already, and the event that ends the block.
func (a *answer) block(b model.Block) {
	switch b.Type {
	case model.Text:
		if a.open != model.Text {
			a.delta(model.Text, b.Text)
		}
	case model.Thinking:
		if a.open != model.Thinking {
			a.delta(model.Thinking, b.Text)
		}
		a.blockDelta(obj{"type": "signature_delta", "signature": Sign(b.Text)})
	case model.ToolUse:
		a.start(model.ToolUse, &b)
		for _, piece := range halves(string(b.Input)) {
			a.blockDelta(obj{"type": "input_json_delta", "partial_json": piece})
		}
	}
	a.event("content_block_stop", obj{"index": a.index})
	a.open = ""
	a.index++
}

// start begins a block of a type, unless one of that type is open.
func (a *answer) start(t model.BlockType, use *model.Block) {
	if a.open == t {
		return
	}
	a.open = t
	b := obj{"type": string(t)}
	switch t {
	case model.Text:
		b["text"] = ""
	case model.Thinking:
		b["thinking"], b["signature"] = "", ""
	case model.ToolUse:
		b["id"], b["name"], b["input"] = use.ID, use.Name, obj{}
	}
	a.event("content_block_start", obj{"index": a.index, "content_block": b})
}

func (a *answer) blockDelta(d obj) {
	a.event("content_block_delta", obj{"index": a.index, "delta": d})
}

// event writes one event and flushes it.
func (a *answer) event(name string, data any) {
	if o, ok := data.(obj); ok {
		o["type"] = name
	}
	raw, err := json.Marshal(data)
	if err == nil {
		_, err = a.w.Write([]byte("event: " + name + "\ndata: " + string(raw) + "\n\n"))
	}
	a.gone = a.gone || err != nil
	a.flush()
}

func (a *answer) flush() {
	if err := http.NewResponseController(a.w).Flush(); err != nil {
		a.gone = true
	}
}

// whole sends the answer as one JSON message, not as a stream, once the model is done.
func (a *answer) whole(chunks iter.Seq2[model.Chunk, error]) {
	content := []any{}
	for c, err := range chunks {
		switch {
		case err != nil:
			refuse(a.w, mustRefuse(err))
			return
		case c.Type == model.ChunkBlock:
			content = append(content, plain(c.Block))
		case c.Type == model.ChunkDone:
			writeJSON(a.w, http.StatusOK, a.message(content, c.StopReason, c.Usage))
		}
	}
}

func plain(b model.Block) obj {
	switch b.Type {
	case model.Thinking:
		return obj{"type": "thinking", "thinking": b.Text, "signature": Sign(b.Text)}
	case model.ToolUse:
		return obj{"type": "tool_use", "id": b.ID, "name": b.Name, "input": b.Input}
	}
	return obj{"type": "text", "text": b.Text}
}

// halves splits a text in two between characters, so that clients have to join pieces.
func halves(s string) []string {
	i := clip.At(s, len(s)/2)
	if i == 0 {
		return []string{s}
	}
	return []string{s[:i], s[i:]}
}
