package chat

import (
	"bytes"
	"os"
	"sync"
)

// pane is the terminal as the renderer writes to it. The renderer puts rows above what it
// has drawn, so nothing may go above before a first frame stands there, after the start and
// after another program had the terminal: drawn has it then. failed is closed when the
// terminal takes nothing any more; the renderer itself does not look.
type pane struct {
	*os.File
	drawn, failed chan struct{}
	broken        sync.Once
}

func newPane(f *os.File) *pane {
	return &pane{File: f, drawn: make(chan struct{}, 1), failed: make(chan struct{})}
}

// frame occurs in first frames only: it turns on bracketed paste.
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
