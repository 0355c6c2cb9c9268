package main

import (
	"fmt"
	"io"
	"time"
)

// progress shows how much has passed, on a line that is written again and again
// and is gone at the end.
type progress struct {
	r     io.Reader
	w     io.Writer
	verb  string
	n     int64
	next  time.Time // when the line is due
	now   func() time.Time
	shown bool
}

// progressAfter keeps what is quick silent; progressEvery keeps the line calm.
const (
	progressAfter = 500 * time.Millisecond
	progressEvery = 200 * time.Millisecond
)

// progress watches a reader of something that may be long, when somebody looks:
// on a terminal, without --json. done must be called.
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
		fmt.Fprintf(p.w, "\r\x1b[K%s %s", p.verb, bytesFor(p.n))
	}
	return n, err
}

func (p *progress) done() {
	if p.shown {
		// A terminal that is gone needs no cleaning.
		_, _ = io.WriteString(p.w, "\r\x1b[K")
	}
}
