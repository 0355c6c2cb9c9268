package resident

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// longLine is how many bytes of an unfinished line are read before they count as taken; longHeld is how
	// many bytes may be handled but not yet recorded. The box can buffer about as much.
	longLine, longHeld = 2 << 20, 4 << 20
	// ahead is how many lines may be read before the first of them is handled. After a line longer than
	// large, nothing is read until that line is handled.
	ahead = 64
	large = 256 << 10
)

// Line is a line of the agent without its newline, with its place in the agent's output.
type Line struct {
	Text []byte
	// At is the offset of its first byte, Next is the offset of the line after it.
	At, Next int64
	// handled is closed once the run has handled the line; nil if the reader does not wait for that.
	handled chan struct{}
}

// Link is one attachment to an agent's process, which runs on after it. Only one goroutine may
// use it.
type Link struct {
	// In carries the lines that are sent to the agent.
	In *sandbox.Feed

	lines   chan Line
	started chan wire.Started
	errs    sandbox.Tail
	// recorded is the offset up to which output is recorded, read the offset up to which it was
	// handled.
	recorded, read atomic.Int64

	cancel context.CancelFunc
	done   chan struct{}
	res    wire.ExecResult
	err    error
}

// Attach starts the process of a call, or attaches to it if it runs; with an empty request it
// only attaches. It reads output from the offset from on. A line of more than most bytes ends
// the attachment; 0 means the default of Lines. The end of ctx does not end the attachment, so
// that the agent's answer to an interrupt is still read.
func Attach(ctx context.Context, box *sandbox.Box, call holdfast.CallID, req wire.ExecRequest, from int64, most int) *Link {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	k := &Link{
		In: sandbox.NewFeed(), lines: make(chan Line, ahead), started: make(chan wire.Started, 1),
		cancel: cancel, done: make(chan struct{}),
	}
	k.recorded.Store(from)
	k.read.Store(from)
	out := &reader{Lines: Lines{From: from, Most: most, Line: func(l []byte, next int64) error {
		return k.hear(ctx, l, next)
	}}, recorded: &k.recorded, handled: &k.read, broken: cancel}
	go func() {
		defer close(k.done)
		defer close(k.lines)
		k.res, k.err = box.Exec(ctx, sandbox.Call{ID: call}, req, sandbox.ExecOptions{
			Stdin: k.In, Stdout: out, StdoutFrom: from, Stderr: &k.errs, AttachOnly: len(req.Argv) == 0,
			Started: func(s wire.Started) { k.started <- s },
		})
		// The reader failed: its error explains the end of the attachment.
		if err := out.Err(); err != nil && !errors.Is(err, context.Canceled) {
			k.err = err
		}
	}()
	return k
}

// hear passes a line to the run, and, if the line is large, waits until it was handled.
func (k *Link) hear(ctx context.Context, text []byte, next int64) error {
	l := Line{Text: bytes.Clone(text), At: next - int64(len(text)) - 1, Next: next}
	if len(text) > large {
		l.handled = make(chan struct{})
	}
	select {
	case k.lines <- l:
	case <-ctx.Done():
		return ctx.Err()
	}
	if l.handled == nil {
		return nil
	}
	select {
	case <-l.handled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Begun waits until the process has begun, and returns how many bytes of its input it has taken.
// ok is false if the attachment ended without finding a process. A process that has ended but
// whose output can still be read has begun.
func (k *Link) Begun(ctx context.Context) (taken int64, ok bool, err error) {
	select {
	case s := <-k.started:
		return s.StdinTaken, true, nil
	case <-k.done:
	case <-ctx.Done():
		return 0, false, context.Cause(ctx)
	}
	select {
	case s := <-k.started:
		return s.StdinTaken, true, nil
	default:
		return 0, false, nil
	}
}

// Lines returns the channel of the agent's lines. It is closed when the attachment ended.
func (k *Link) Lines() <-chan Line { return k.lines }

// Handled tells the reader of the output that the run has taken over a line, so that it may read on.
func (k *Link) Handled(l Line) {
	k.read.Store(l.Next)
	if l.handled != nil {
		close(l.handled)
	}
}

// Recorded reports the offset up to which the output is recorded: the box may forget it.
func (k *Link) Recorded(to int64) { k.recorded.Store(to) }

// Detach detaches from the process and waits until the attachment has ended. Output that was
// read but not recorded is read again by the next attachment.
func (k *Link) Detach() {
	if k.cancel == nil {
		return
	}
	k.cancel()
	for range k.lines { // read on until Exec has returned, so that it is not blocked
	}
	<-k.done
	k.In.Close()
}

// Lost reports whether the attachment ended because the connection to the box broke; the process
// may still run.
func (k *Link) Lost() bool { return errors.Is(k.err, sandbox.ErrLost) }

// Err returns why the attachment ended, or nil if it ended with the process.
func (k *Link) Err() error { return k.err }

// Stderr returns the end of the agent's standard error.
func (k *Link) Stderr() string { return k.errs.String() }

// How describes, for people to read, how the process ended.
func (k *Link) How() string {
	how := fmt.Sprintf("exit code %d", k.res.Code)
	switch {
	case k.err != nil:
		how = k.err.Error()
	case k.res.Class == holdfast.ExitOOM || k.res.Class == holdfast.ExitPids:
		how = string(k.res.Class)
	case k.res.Signal != "":
		how = "signal " + k.res.Signal
	}
	for _, more := range []string{k.res.Message, k.errs.String()} {
		if more != "" {
			how += ": " + more
		}
	}
	return how
}

// reader splits the output into lines. If it cannot read on, the attachment ends, but not the
// process.
type reader struct {
	Lines
	recorded, handled *atomic.Int64
	broken            func()
	// read is the number of bytes read.
	read int64
}

// Write implements io.Writer.
func (r *reader) Write(p []byte) (int, error) {
	r.read += int64(len(p))
	n, err := r.Lines.Write(p)
	if err != nil {
		r.broken()
	}
	return n, err
}

// Gap ends the attachment, because output between two lines is lost.
func (r *reader) Gap(from, to int64) {
	r.Lines.Gap(from, to)
	r.broken()
}

// Taken implements sandbox.Taker: it returns the offset up to which the box may forget output.
// That is the recorded offset; for a long line, or much unrecorded output, it is a later one,
// because the box may have no room. If the server dies then, the next one finds a gap and ends
// the process.
func (r *reader) Taken() int64 {
	recorded, handled := r.recorded.Load(), r.handled.Load()
	if at := r.From + r.read; at-r.Lines.Taken() > longLine {
		return at
	}
	if handled-recorded > longHeld {
		return handled
	}
	return recorded
}
