package acp

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// line is one of the agent's output, and the offset of the one after it.
type line struct {
	raw  []byte
	next int64
}

// conn is the attachment to an agent's process. Letting go of it leaves the process
// as it is.
type conn struct {
	// lines is closed when the process or the attachment ended; res and err say how.
	lines chan line
	// began gets what stdin the process has taken.
	began chan wire.Started
	res   wire.ExecResult
	err   error

	in     *sandbox.Feed
	stderr sandbox.Tail
	taken  *taker
	cancel context.CancelFunc
	done   chan struct{}
}

// taker takes a line when the log accounts for it (HZ-12), not when it was read.
type taker struct {
	runtime.Lines
	durable atomic.Int64
	stop    func()
}

// Taken implements sandbox.Taker.
func (t *taker) Taken() int64 { return t.durable.Load() }

// Write implements io.Writer. Output that cannot be read on ends the attachment.
func (t *taker) Write(p []byte) (int, error) {
	n, err := t.Lines.Write(p)
	if err != nil {
		t.stop()
	}
	return n, err
}

// attach starts the process, or finds it when req is empty.
func attach(ctx context.Context, box *sandbox.Box, call holdfast.CallID, req wire.ExecRequest, from int64) *conn {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &conn{
		lines: make(chan line), began: make(chan wire.Started, 1), in: sandbox.NewFeed(),
		taken: &taker{stop: cancel}, cancel: cancel, done: make(chan struct{}),
	}
	c.taken.durable.Store(from)
	c.taken.From = from
	c.taken.Line = func(raw []byte, next int64) error {
		select {
		case c.lines <- line{bytes.Clone(raw), next}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	opt := sandbox.ExecOptions{
		Stdin: c.in, Stdout: c.taken, StdoutFrom: from, Stderr: &c.stderr, AttachOnly: len(req.Argv) == 0,
		Started: func(s wire.Started) { c.began <- s },
	}
	go func() {
		defer close(c.done)
		defer close(c.lines)
		defer c.in.Close()
		c.res, c.err = box.Exec(ctx, sandbox.Call{ID: call}, req, opt)
		if err := c.taken.Err(); err != nil {
			c.err = err
		}
	}()
	return c
}

// detach lets go of the process and waits until nothing of this attachment is left.
func (c *conn) detach() {
	c.cancel()
	<-c.done
}

// send sends lines.
func (c *conn) send(lines ...json.RawMessage) error {
	for _, l := range lines {
		if err := c.in.Add(l, []byte{'\n'}); err != nil {
			return err
		}
	}
	return nil
}

// why says how the process ended, for people.
func (c *conn) why() string {
	var said []string
	switch {
	case c.err != nil:
		said = append(said, c.err.Error())
	case c.res.Signal != "":
		said = append(said, "signal "+c.res.Signal)
	default:
		said = append(said, "exit code "+itoa(c.res.Code))
	}
	if c.res.Message != "" {
		said = append(said, c.res.Message)
	}
	if t := c.stderr.String(); t != "" {
		said = append(said, holdfast.Quote(t))
	}
	return strings.Join(said, ": ")
}
