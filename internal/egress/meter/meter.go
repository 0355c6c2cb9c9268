// Package meter counts the tokens of a model's answer while the answer passes: it reads the
// usage from the bytes that a provider sends, without changing them.
//
// It owns the bytes of an unfinished line and the counts so far. Only package egress imports it.
// Invariants: the counts do not depend on the pieces in which an answer arrives; a line that is
// too long is skipped, so that memory stays bounded; no count is ever negative.
package meter

import (
	"bytes"
	"encoding/json"

	"github.com/holdfast-run/holdfast"
)

// Meter counts the tokens of one answer. It must be used by one goroutine only.
type Meter interface {
	// Feed reads the next piece of a streamed answer.
	Feed(p []byte)
	// Whole reads a complete answer that is not streamed.
	Whole(raw []byte)
	// End reads the last line of a streamed answer, which may lack its line end. It must be called at the end of the
	// stream, after the last Feed.
	End()
	// Ended reports whether the answer is complete.
	Ended() bool
	// Usage returns the tokens that the provider has reported so far.
	Usage() holdfast.Usage
	// Seen returns roughly how many bytes of text the provider has sent, to estimate tokens that it
	// did not report.
	Seen() int64
	// Failure returns the message of an error that the provider sent within the stream; empty if it
	// sent none.
	Failure() string
}

// Messages returns a meter for an answer of the Messages API.
func Messages() Meter { return &messages{} }

// Chat returns a meter for an answer of the chat completions API.
func Chat() Meter { return &chat{} }

// maxLine is the longest line of a stream, in bytes, that is decoded. Lines with usage are short.
const maxLine = 1 << 20

// lines splits a stream of server-sent events into the texts after "data:", one for each such line.
type lines struct {
	line []byte
	// long is true while the rest of a line over maxLine is skipped.
	long bool
}

func (l *lines) feed(p []byte, data func([]byte)) {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			l.add(p)
			return
		}
		l.add(p[:i])
		l.end(data)
		p = p[i+1:]
	}
}

// end ends the current line, and passes its data on if it has any.
func (l *lines) end(data func([]byte)) {
	if d, ok := bytes.CutPrefix(l.line, []byte("data:")); ok && !l.long {
		data(bytes.TrimSpace(d))
	}
	l.line, l.long = l.line[:0], false
}

func (l *lines) add(p []byte) {
	if l.long || len(l.line)+len(p) > maxLine {
		l.line, l.long = l.line[:0], true
		return
	}
	l.line = append(l.line, p...)
}

// counts is what one meter has counted in its answer so far. The meters of both APIs have it in common.
type counts struct {
	lines
	used  holdfast.Usage
	bytes int64
	done  bool
	fault string
}

func (c *counts) Ended() bool           { return c.done }
func (c *counts) Usage() holdfast.Usage { return c.used }
func (c *counts) Seen() int64           { return c.bytes }
func (c *counts) Failure() string       { return c.fault }

// messagesUsage is the usage in an answer of the Messages API. Several events of a stream contain a
// usage, and each may leave counts out.
type messagesUsage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
}

type messages struct{ counts }

func (m *messages) Feed(p []byte) { m.lines.feed(p, m.event) }
func (m *messages) End()          { m.lines.end(m.event) }

func (m *messages) event(d []byte) {
	m.bytes += int64(len(d))
	var ev struct {
		Type    string `json:"type"`
		Message struct {
			Usage messagesUsage `json:"usage"`
		} `json:"message"`
		Usage messagesUsage `json:"usage"`
		Delta struct {
			Type        string `json:"type"`
			Text        string `json:"text"`
			Thinking    string `json:"thinking"`
			PartialJSON string `json:"partial_json"`
		} `json:"delta"`
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(d, &ev) != nil {
		return
	}
	m.bytes -= int64(len(d))
	switch ev.Type {
	case "message_start":
		m.take(ev.Message.Usage)
	case "message_delta":
		m.take(ev.Usage)
	case "message_stop":
		m.done = true
	case "content_block_delta":
		m.bytes += int64(len(ev.Delta.Text) + len(ev.Delta.Thinking) + len(ev.Delta.PartialJSON))
	case "error":
		m.fault = ev.Error.Message
	}
}

func (m *messages) take(u messagesUsage) {
	for _, f := range []struct {
		from *int64
		to   *int64
	}{
		{u.Input, &m.used.InputTokens},
		{u.Output, &m.used.OutputTokens},
		{u.CacheRead, &m.used.CacheReadTokens},
		{u.CacheWrite, &m.used.CacheWriteTokens},
	} {
		if f.from != nil {
			// A later event can raise a count; a lower number is ignored.
			*f.to = max(*f.to, *f.from)
		}
	}
}

func (m *messages) Whole(raw []byte) {
	var msg struct {
		Usage messagesUsage `json:"usage"`
	}
	if json.Unmarshal(raw, &msg) == nil {
		m.take(msg.Usage)
	}
	m.bytes, m.done = int64(len(raw)), true
}

// chatUsage is the usage in an answer of the chat completions API.
type chatUsage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Details    struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

type chat struct {
	counts
	// finished is true once the provider has said why the answer ended.
	finished bool
}

func (m *chat) Feed(p []byte) { m.lines.feed(p, m.event) }

// End implements Meter. Some servers leave out [DONE], the last line of a stream: without it the answer is complete if
// it has a finish_reason and no error.
func (m *chat) End() {
	m.lines.end(m.event)
	m.done = m.done || m.finished && m.fault == ""
}

func (m *chat) event(d []byte) {
	if string(d) == "[DONE]" {
		m.done = true
		return
	}
	var ev struct {
		Usage   *chatUsage `json:"usage"`
		Choices []struct {
			Delta  json.RawMessage `json:"delta"`
			Finish json.RawMessage `json:"finish_reason"`
		} `json:"choices"`
		Error *struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(d, &ev) != nil {
		m.bytes += int64(len(d))
		return
	}
	for _, c := range ev.Choices {
		m.bytes += int64(len(c.Delta))
		m.finished = m.finished || len(c.Finish) > 0 && string(c.Finish) != "null"
	}
	if ev.Usage != nil {
		m.take(ev.Usage)
	}
	if ev.Error != nil {
		m.fault = ev.Error.Message
	}
}

func (m *chat) take(u *chatUsage) {
	prompt := max(u.Prompt, 0)
	cached := min(max(u.Details.Cached, 0), prompt)
	m.used = holdfast.Usage{InputTokens: prompt - cached, CacheReadTokens: cached, OutputTokens: max(u.Completion, 0)}
}

func (m *chat) Whole(raw []byte) {
	var msg struct {
		Usage *chatUsage `json:"usage"`
	}
	if json.Unmarshal(raw, &msg) == nil && msg.Usage != nil {
		m.take(msg.Usage)
	}
	m.bytes, m.done = int64(len(raw)), true
}
