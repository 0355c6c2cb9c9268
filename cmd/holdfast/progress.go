package main

import (
	"fmt"
	"io"
	"time"

	"github.com/holdfast-run/holdfast/internal/plain"
)

// progress is a reader that shows how many bytes have passed through it, on a line that is
// redrawn and removed at the end.
type progress struct {
	r     io.Reader
	w     io.Writer
	verb  string
	n     int64
	next  time.Time // when the line is redrawn next
	now   func() time.Time
	shown bool
}

// progressAfter is the delay before the line appears, so that quick transfers show none;
// progressEvery is the least time between redraws.
const (
	progressAfter = 500 * time.Millisecond
	progressEvery = 200 * time.Millisecond
)

// progress wraps a reader of something long so that its progress is shown, if stderr is a
// terminal and --json is not set. The caller must call done.
func (e *env) progress(r io.Reader, verb string) (_ io.Reader, done func()) {
	if e.json || !isTerminal(e.stderr) {
		return r, func() {}
	}
	p := &progress{r: r, w: e.stderr, verb: verb, now: time.Now, next: time.Now().Add(progressAfter)}
	return p, p.done
}

func (p *progress) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.n += int64(n)
	if now := p.now(); !now.Before(p.next) {
		p.next, p.shown = now.Add(progressEvery), true
		fmt.Fprintf(p.w, "\r\x1b[K%s %s", p.verb, plain.Size(p.n))
	}
	return n, err
}

func (p *progress) done() {
	if p.shown {
		// If the terminal is gone, there is no line to remove.
		_, _ = io.WriteString(p.w, "\r\x1b[K")
	}
}
