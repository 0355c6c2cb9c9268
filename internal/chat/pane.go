package chat

import (
	"bytes"
	"os"
	"sync"
)

// pane is the terminal that the renderer writes to. Rows can be printed above the frame only when a frame
// is drawn: drawn receives a value after the first frame, at the start and after another
// program had the terminal. failed is closed when a write to the terminal fails, because the
// renderer ignores such errors.
type pane struct {
	*os.File
	drawn, failed chan struct{}
	broken        sync.Once
}

func newPane(f *os.File) *pane {
	return &pane{File: f, drawn: make(chan struct{}, 1), failed: make(chan struct{})}
}

// frame is the sequence that turns on bracketed paste. It occurs in first frames only.
var frame = []byte("\x1b[?2004h")

func (p *pane) Write(b []byte) (int, error) {
	n, err := p.File.Write(b)
	if err != nil {
		p.broken.Do(func() { close(p.failed) })
	} else if bytes.Contains(b, frame) {
		select {
		case p.drawn <- struct{}{}:
		default:
		}
	}
	return n, err
}
