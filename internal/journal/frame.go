package journal

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Frame is an event and its wire form, which all readers of a session share:
// with 1,000 readers an event is encoded once, not 1,000 times.
type Frame struct {
	holdfast.Event

	// encoded is true if the journal itself encoded Data, which is then JSON on one line.
	encoded bool

	once sync.Once
	json []byte
}

// newFrame makes the frame of an event from a store.
func newFrame(e holdfast.Event) *Frame { return &Frame{Event: e} }

// encodedFrame makes the frame of an event whose Data is the result of marshal.
func encodedFrame(e holdfast.Event) *Frame { return &Frame{Event: e, encoded: true} }

// JSON returns the event as one line of JSON, without a line end. Callers must not change it. Safe
// for concurrent use.
func (f *Frame) JSON() []byte {
	f.once.Do(func() {
		if f.encoded {
			f.json = appendEvent(make([]byte, 0, len(f.Data)+eventOverhead), &f.Event)
			return
		}
		b, err := marshal(f.Event)
		if err != nil {
			// Only Data can fail to encode, and the stores accept only valid JSON, so the log is damaged.
			// Send the event with a payload that says so, instead of ending the stream.
			e := f.Event
			e.Data = json.RawMessage(`{"damaged":true}`)
			b, _ = marshal(e)
		}
		f.json = b
	})
	return f.json
}

// eventOverhead is the approximate length of an event's JSON without its payload.
const eventOverhead = 256

// appendEvent appends an event to b exactly as marshal would encode it, but without parsing Data
// again, which must be a result of marshal.
func appendEvent(b []byte, e *holdfast.Event) []byte {
	b = appendString(append(b, `{"session_id":`...), string(e.Session))
	if e.Seq != 0 {
		b = strconv.AppendInt(append(b, `,"seq":`...), e.Seq, 10)
	}
	b = appendString(append(b, `,"type":`...), string(e.Type))
	if e.Turn != "" {
		b = appendString(append(b, `,"turn_id":`...), string(e.Turn))
	}
	if e.Agent != "" {
		b = appendString(append(b, `,"agent":`...), string(e.Agent))
	}
	b = append(append(b, `,"data":`...), e.Data...)
	b = e.Time.AppendFormat(append(b, `,"time":"`...), time.RFC3339Nano)
	return append(b, `"}`...)
}

// appendString appends a string to b exactly as marshal would encode it.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := marshal(s) // the error is ignored: a string can always be encoded
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// piece is one item for a reader: an event, or a run of consecutive deltas that a slow reader gets as one.
type piece struct {
	frame *Frame
	run   []*delta
}

// add appends the delta d to the pieces. If d continues the text of the last piece, it becomes part of that piece.
func add(out []piece, d *delta) []piece {
	if n := len(out); n > 0 && len(out[n-1].run) > 0 && continues(out[n-1].run[len(out[n-1].run)-1], d) {
		out[n-1].run = append(out[n-1].run, d)
		return out
	}
	return append(out, piece{frame: d.frame, run: []*delta{d}})
}

// continues reports whether the text of delta b directly follows that of delta a, so that both can be joined.
func continues(a, b *delta) bool {
	if a.frame.Type != b.frame.Type || a.frame.Turn != b.frame.Turn {
		return false
	}
	switch x := a.value.(type) {
	case holdfast.TextDelta:
		y, ok := b.value.(holdfast.TextDelta)
		return ok && y.At == x.At+int64(len(x.Text))
	case holdfast.ToolOutput:
		y, ok := b.value.(holdfast.ToolOutput)
		return ok && x.ToolUseID == y.ToolUseID && x.Stream == y.Stream
	}
	return false
}

// join returns a piece as one frame; the texts of its deltas are concatenated.
func (p piece) join() *Frame {
	if len(p.run) < 2 {
		return p.frame
	}
	var text strings.Builder
	for _, d := range p.run {
		switch v := d.value.(type) {
		case holdfast.TextDelta:
			text.WriteString(v.Text)
		case holdfast.ToolOutput:
			text.WriteString(v.Text)
		}
	}
	value := p.run[0].value
	switch v := value.(type) {
	case holdfast.TextDelta:
		v.Text = text.String()
		value = v
	case holdfast.ToolOutput:
		v.Text = text.String()
		value = v
	}
	e := p.run[len(p.run)-1].frame.Event
	data, err := marshal(value)
	if err != nil { // this does not happen: a delta has only strings and numbers, which can always be encoded
		return p.frame
	}
	e.Data = data
	return encodedFrame(e)
}
