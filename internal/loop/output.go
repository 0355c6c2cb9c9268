package loop

import (
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

const (
	// outputEvery is the longest time that live output is held back before it is sent as one delta;
	// outputBytes is the most bytes of output that are held back.
	outputEvery = 30 * time.Millisecond
	outputBytes = 4 << 10
)

// output collects a tool's live output into deltas. Safe for concurrent use.
type output struct {
	rec Recorder
	use string

	mu     sync.Mutex
	closed bool
	stream string
	buf    strings.Builder
	timer  *time.Timer
}

func (o *output) write(stream, text string) {
	if text == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	if o.buf.Len() > 0 && o.stream != stream {
		o.flush()
	}
	o.stream = stream
	o.buf.WriteString(text)
	if o.buf.Len() >= outputBytes {
		o.flush()
		return
	}
	if o.timer == nil {
		o.timer = time.AfterFunc(outputEvery, o.tick)
	}
}

func (o *output) tick() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.timer = nil
	if !o.closed {
		o.flush()
	}
}

// flush sends the collected text as a delta. o.mu is held, so that deltas keep their order.
func (o *output) flush() {
	if o.buf.Len() == 0 {
		return
	}
	o.rec.Delta(holdfast.DeltaToolOutput, holdfast.ToolOutput{ToolUseID: o.use, Stream: o.stream, Text: o.buf.String()})
	o.buf.Reset()
}

// close sends the output that was not sent yet. Output that is written later is dropped.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer != nil {
		o.timer.Stop()
	}
	o.flush()
	o.closed = true
}
