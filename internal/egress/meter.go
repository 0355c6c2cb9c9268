package egress

import (
	"bytes"
	"encoding/json"

	"github.com/holdfast-run/holdfast"
)

// meter reads out of an answer, as it passes, what it used up.
type meter interface {
	// feed takes a piece of a stream, whole an answer without one.
	feed(p []byte)
	whole(raw []byte)
	// ended: the stream has come to its end.
	ended() bool
	// usage is what the provider said so far; seen is about how many bytes of text
	// it sent.
	usage() holdfast.Usage
	seen() int64
	// failure is the provider's error within the stream; empty when there is none.
	failure() string
}

// maxLine is the longest line of a stream that is looked into. What counts is short.
const maxLine = 1 << 20

// lines cuts a stream into the data of its events.
type lines struct {
	line []byte
	// long: the line is over maxLine, and skipped to its end.
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
		if d, ok := bytes.CutPrefix(l.line, []byte("data:")); ok && !l.long {
			data(bytes.TrimSpace(d))
		}
		l.line, l.long = l.line[:0], false
		p = p[i+1:]
	}
}

func (l *lines) add(p []byte) {
	if l.long || len(l.line)+len(p) > maxLine {
		l.line, l.long = l.line[:0], true
		return
	}
	l.line = append(l.line, p...)
}

// messagesUsage is usage as the Messages API tells it. A later one adds to what an
// earlier one left out.
type messagesUsage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
}

type messagesMeter struct {
	lines
	used  holdfast.Usage
	bytes int64
	done  bool
	fault string
}

func (m *messagesMeter) feed(p []byte) { m.lines.feed(p, m.event) }

func (m *messagesMeter) event(d []byte) {
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

func (m *messagesMeter) take(u messagesUsage) {
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
			// It only grows: nothing that was told is taken back.
			*f.to = max(*f.to, *f.from)
		}
	}
}

func (m *messagesMeter) whole(raw []byte) {
	var msg struct {
		Usage messagesUsage `json:"usage"`
	}
	if json.Unmarshal(raw, &msg) == nil {
		m.take(msg.Usage)
	}
	m.bytes, m.done = int64(len(raw)), true
}

func (m *messagesMeter) ended() bool           { return m.done }
func (m *messagesMeter) usage() holdfast.Usage { return m.used }
func (m *messagesMeter) seen() int64           { return m.bytes }
func (m *messagesMeter) failure() string       { return m.fault }

// chatUsage is usage as chat completions tell it.
type chatUsage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Details    struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

type chatMeter struct {
	lines
	used  holdfast.Usage
	bytes int64
	done  bool
	fault string
}

func (m *chatMeter) feed(p []byte) { m.lines.feed(p, m.event) }

func (m *chatMeter) event(d []byte) {
	if string(d) == "[DONE]" {
		m.done = true
		return
	}
	var ev struct {
		Usage   *chatUsage `json:"usage"`
		Choices []struct {
			Delta json.RawMessage `json:"delta"`
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
	}
	if ev.Usage != nil {
		m.take(ev.Usage)
	}
	if ev.Error != nil {
		m.fault = ev.Error.Message
	}
}

func (m *chatMeter) take(u *chatUsage) {
	prompt := max(u.Prompt, 0)
	cached := min(max(u.Details.Cached, 0), prompt)
	m.used = holdfast.Usage{InputTokens: prompt - cached, CacheReadTokens: cached, OutputTokens: max(u.Completion, 0)}
}

func (m *chatMeter) whole(raw []byte) {
	var msg struct {
		Usage *chatUsage `json:"usage"`
	}
	if json.Unmarshal(raw, &msg) == nil && msg.Usage != nil {
		m.take(msg.Usage)
	}
	m.bytes, m.done = int64(len(raw)), true
}

func (m *chatMeter) ended() bool           { return m.done }
func (m *chatMeter) usage() holdfast.Usage { return m.used }
func (m *chatMeter) seen() int64           { return m.bytes }
func (m *chatMeter) failure() string       { return m.fault }
