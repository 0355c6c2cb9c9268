package sandbox

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// ExecOptions are the streams and callbacks of an exec.
type ExecOptions struct {
	// Stdout and Stderr receive the output, from the given offsets on; nil discards it. After
	// a write error a writer gets no more output, but the call continues. A writer that is a
	// Gapper receives the range of output that boxd's spool dropped. For a line protocol
	// (wire.ExecRequest.Lines) boxd stores the output until it is taken: once Stdout has
	// written it or, if Stdout is a Taker, once Taken returns an offset beyond it.
	Stdout, Stderr         io.Writer
	StdoutFrom, StderrFrom int64
	// Stdin is sent to the process until its end or an error; nil sends nothing. Exec does not
	// wait for a Read that is in progress when Exec returns.
	Stdin io.Reader
	// Resize carries new terminal sizes and Signal signal numbers for the process; both are
	// forwarded until the channel is closed. Nil forwards nothing.
	Resize <-chan wire.Size
	Signal <-chan int
	// Started is called once, before any output. It is not called if no process exists: the
	// start failed, or the process ended with an earlier boot of the box.
	Started func(wire.Started)
	// AttachOnly attaches to a call that was started before and starts nothing: an unknown
	// call is not_found. If the request is empty, the call's arguments are not compared.
	AttachOnly bool
}

// hangupMS is how many milliseconds a process on a terminal has between SIGTERM and SIGKILL
// after its caller has disconnected, if its request sets KillOnDetach.
const hangupMS = 2000

// Gapper is an output writer that also receives the ranges of dropped output: Gap says that the bytes from
// offset from up to offset to are lost.
type Gapper interface {
	Gap(from, to int64)
}

// Taker is a Stdout for line protocols that may need output again after Write returned, for
// example after a crash. If output is not taken, boxd's spool fills up and the process blocks.
type Taker interface {
	// Taken returns the offset up to which boxd may delete the output. It is called after
	// each Write.
	Taken() int64
}

// Exec runs a process, or attaches to the call with the same id, and returns when the process
// (the leader, not its children) has ended. If ctx ends first, Exec returns its error and the
// call continues in the box, unless the request sets KillOnDetach.
func (b *Box) Exec(ctx context.Context, call Call, req wire.ExecRequest, opt ExecOptions) (wire.ExecResult, error) {
	var res wire.ExecResult
	if err := call.check(wire.OpExec); err != nil {
		return res, err
	}
	if opt.Stdin != nil {
		req.Stdin = true
	}
	raw, err := json.Marshal(req)
	if err != nil {
		return res, err
	}
	layers, unknown := layersOf(ctx)
	told := watcherOf(ctx)
	q, err := request(wire.OpExec, wire.ExecBody{
		Exec: raw, Attach: wire.Attach{StdoutFrom: opt.StdoutFrom, StderrFrom: opt.StderrFrom}, AttachOnly: opt.AttachOnly || unknown != nil,
		Env: b.link.envOf(b.session), Layers: layers, Watch: told != nil,
	})
	if err != nil {
		return res, err
	}
	q.Call = call.ID
	if !opt.AttachOnly || len(req.Argv) > 0 || req.Shell != "" {
		q.Hash = wire.ArgumentHash(wire.OpExec, raw)
	}
	c, err := b.link.open(ctx, b.session, q, nil, b.link.patience.process(req.TimeoutMS))
	if err != nil {
		return res, err
	}
	x := &exec{conv: c, b: b, call: call.ID, opt: opt, more: make(chan struct{}, 1)}
	x.over, x.end = context.WithCancel(ctx)
	err = x.run(&res)
	if unknown != nil && holdfast.IsKind(err, holdfast.KindNotFound) {
		err = unknown
	}
	if err == nil && told != nil {
		told(changesOf(res.Changes))
	}
	if (ctx.Err() != nil || c.watch.end() != nil) && req.KillOnDetach {
		// boxd also kills the call when its stream ends, but the end of the stream may be stuck behind unread stdin.
		go x.kill(call.ID, req.PTY != nil)
	}
	return res, err
}

type exec struct {
	*conv
	b       *Box
	call    holdfast.CallID
	opt     ExecOptions
	over    context.Context // ends when end is called, at the end of the operation
	end     func()
	senders sync.WaitGroup
	// lines is true if the process speaks a line protocol. taken is the offset up to which its
	// output was taken; more wakes the goroutine that sends taken to boxd.
	lines bool
	taken atomic.Int64
	more  chan struct{}
}

// take sends boxd the newest offset up to which the output was taken, whenever it changes. It
// uses a separate stream, because on the exec's stream unread stdin could block it for ever.
func (x *exec) take() {
	for {
		select {
		case <-x.more:
		case <-x.over.Done():
			return
		}
		if x.b.Take(x.over, wire.TakeRequest{Call: x.call, StdoutTo: x.taken.Load()}) != nil {
			return // the connection broke, or boxd no longer has the call
		}
	}
}

// took records how much output was taken and wakes the goroutine that tells boxd.
func (x *exec) took(out *output) {
	if off, ok := out.taken(); ok && x.lines && off > x.taken.Load() {
		x.taken.Store(off)
		select {
		case x.more <- struct{}{}:
		default:
		}
	}
}

// kill kills a call to which no caller will attach again, and releases it.
func (x *exec) kill(id holdfast.CallID, tty bool) {
	req := wire.KillRequest{Call: id}
	if tty {
		req.GraceMS = hangupMS // this gives a shell time to save its history
	}
	ctx, cancel := context.WithTimeout(linkContext{x.link}, 10*time.Second)
	defer cancel()
	_ = x.b.Kill(ctx, req)
	x.b.Release(id)
}

func (x *exec) run(res *wire.ExecResult) error {
	x.send()
	defer func() {
		x.end()
		_ = x.stream.SetWriteDeadline(past) // makes the blocked writes of stdin, sizes and signals return
		x.senders.Wait()
		x.close()
	}()
	out := output{w: x.opt.Stdout, next: x.opt.StdoutFrom}
	errs := output{w: x.opt.Stderr, next: x.opt.StderrFrom}
	for {
		t, payload, err := x.next(x.r.Next)
		if err != nil {
			return x.fail(err)
		}
		x.watch.sign(true)
		switch t {
		case wire.FrameStarted:
			var s wire.Started
			if err := json.Unmarshal(payload, &s); err != nil {
				return holdfast.Errorf(holdfast.KindUnavailable, "box exec", "cannot decode boxd's message that the process started: %w", err)
			}
			if x.opt.Started != nil {
				x.opt.Started(s)
				x.opt.Started = nil
			}
			if s.Lines && !x.lines {
				x.lines = true
				x.senders.Go(x.take)
			}
		case wire.FrameStdout:
			err = out.take(payload)
			x.took(&out)
		case wire.FrameStderr:
			err = errs.take(payload)
		default:
			return x.decode(t, payload, res)
		}
		x.watch.sign(false)
		if err != nil {
			return err
		}
	}
}

// send starts the goroutines that forward stdin, terminal sizes and signals to the process.
func (x *exec) send() {
	if x.opt.Stdin != nil {
		go x.sendStdin()
	}
	if x.opt.Resize != nil {
		x.senders.Go(func() {
			forward(x, x.opt.Resize, wire.FrameResize, func(s wire.Size) any { return s })
		})
	}
	if x.opt.Signal != nil {
		x.senders.Go(func() {
			forward(x, x.opt.Signal, wire.FrameSignal, func(n int) any { return wire.Signal{Signal: n} })
		})
	}
}

func forward[T any](x *exec, ch <-chan T, t wire.FrameType, msg func(T) any) {
	for {
		select {
		case v, ok := <-ch:
			if !ok || wire.WriteJSON(x.stream, t, msg(v)) != nil {
				return
			}
		case <-x.over.Done():
			return
		}
	}
}

func (x *exec) sendStdin() {
	buf := make([]byte, 32<<10)
	for {
		n, err := x.opt.Stdin.Read(buf)
		select {
		case <-x.over.Done():
			return
		default:
		}
		if n > 0 && wire.WriteFrame(x.stream, wire.FrameStdin, buf[:n]) != nil {
			return
		}
		if err != nil {
			_ = wire.WriteFrame(x.stream, wire.FrameEOF, nil)
			return
		}
	}
}

// output writes the frames of stdout or stderr to a writer, and reports gaps to it. next is
// the offset of the next expected byte.
type output struct {
	w    io.Writer
	next int64
	// failed is true after the writer returned an error; it gets no more output.
	failed bool
}

// taken returns the offset up to which boxd may delete the output; ok is false after the
// writer failed.
func (o *output) taken() (offset int64, ok bool) {
	if t, ok := o.w.(Taker); ok {
		return t.Taken(), true
	}
	return o.next, !o.failed
}

func (o *output) take(payload []byte) error {
	if len(payload) < 8 {
		return holdfast.Errorf(holdfast.KindUnavailable, "box exec", "boxd sent an output frame of %d bytes, too short for its offset", len(payload))
	}
	at := int64(binary.BigEndian.Uint64(payload))
	data := payload[8:]
	if o.w != nil {
		if g, ok := o.w.(Gapper); ok && at > o.next {
			g.Gap(o.next, at)
		}
		if _, err := o.w.Write(data); err != nil {
			o.w, o.failed = nil, true // the writer gets no more output, but the call continues
		}
	}
	o.next = at + int64(len(data))
	return nil
}
