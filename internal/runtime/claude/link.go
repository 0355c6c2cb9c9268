package claude

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// mostLine is the longest line of the CLI that is read.
	mostLine = 12 << 20
	// longLine is from where on a line is taken in parts, longAnswer how much of an
	// answer that is not complete the box keeps for the next server.
	longLine, longAnswer = 2 << 20, 4 << 20
	// ahead is how many lines are read before they are dealt with; behind a line over
	// large none is.
	ahead = 64
	large = 256 << 10
)

// raw is a line as it came, and the offset of the one after it. Met is closed when it
// is dealt with; nil is a line for which nobody waits.
type raw struct {
	line []byte
	next int64
	met  chan struct{}
}

// link is one attachment to the CLI's process. The process does not end with it.
type link struct {
	box  *sandbox.Box
	call holdfast.CallID
	// lines are what it says; closed when the attachment has ended, then err and
	// res say how.
	lines   chan raw
	started chan wire.Started
	out     *sandbox.Feed
	errs    sandbox.Tail
	// taken is what the log accounts for, read what was dealt with.
	taken, read atomic.Int64

	cancel context.CancelFunc
	done   chan struct{}
	res    wire.ExecResult
	err    error
}

// attach starts the process of a call, or finds it running; with an empty request
// it only finds it.
func attach(ctx context.Context, box *sandbox.Box, call holdfast.CallID, req wire.ExecRequest, from int64) *link {
	// The end of the turn is not the end of the attachment: what the CLI says to an
	// interrupt is still to be heard.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	k := &link{
		box: box, call: call, lines: make(chan raw, ahead), started: make(chan wire.Started, 1), out: sandbox.NewFeed(),
		cancel: cancel, done: make(chan struct{}),
	}
	k.taken.Store(from)
	k.read.Store(from)
	out := &reader{Lines: runtime.Lines{From: from, Most: mostLine, Line: func(l []byte, next int64) error {
		return k.hear(ctx, l, next)
	}}, taken: &k.taken, dealt: &k.read, broken: cancel}
	go func() {
		defer close(k.done)
		defer close(k.lines)
		k.res, k.err = box.Exec(ctx, sandbox.Call{ID: call}, req, sandbox.ExecOptions{
			Stdin: k.out, Stdout: out, StdoutFrom: from, Stderr: &k.errs, AttachOnly: len(req.Argv) == 0,
			Started: func(s wire.Started) { k.started <- s },
		})
		// Its reader gave up on what the process says: nothing more can be read of it.
		if err := out.Err(); err != nil && !errors.Is(err, context.Canceled) {
			k.err = err
		}
	}()
	return k
}

// hear hands a line to the run.
func (k *link) hear(ctx context.Context, l []byte, next int64) error {
	r := raw{line: bytes.Clone(l), next: next}
	if len(l) > large {
		r.met = make(chan struct{})
	}
	select {
	case k.lines <- r:
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.met == nil {
		return nil
	}
	select {
	case <-r.met:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// detach lets go of the process.
func (k *link) detach() {
	k.cancel()
	for range k.lines { // until Exec has returned
	}
	<-k.done
	k.out.Close()
}

// reader cuts the output into lines. Taken is what the log accounts for. A line that
// cannot be read ends the reading, not the call.
type reader struct {
	runtime.Lines
	taken  *atomic.Int64
	dealt  *atomic.Int64
	broken func()
	// read counts all that was read.
	read int64
}

func (r *reader) Write(p []byte) (int, error) {
	r.read += int64(len(p))
	n, err := r.Lines.Write(p)
	if err != nil {
		r.broken()
	}
	return n, err
}

func (r *reader) Gap(from, to int64) {
	r.Lines.Gap(from, to)
	r.broken()
}

// Taken implements sandbox.Taker. What the box's spool may have no room for, a long
// line, a long answer, is taken before the log accounts for it: a server that dies
// within it finds a gap, and the process is ended.
func (r *reader) Taken() int64 {
	taken, dealt := r.taken.Load(), r.dealt.Load()
	if at := r.From + r.read; at-r.Lines.Taken() > longLine {
		return at
	}
	if dealt-taken > longAnswer {
		return dealt
	}
	return taken
}

// lost reports that the attachment ended because the pipe to the box broke: the
// process may be alive.
func (k *link) lost() bool { return errors.Is(k.err, sandbox.ErrLost) }
