package jsonrpc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"
)

// The bounds of a Peer: the bytes of a line that it reads, the values of a message and their
// nesting, and the open requests in each direction.
const (
	MaxLine   = 9 << 20
	MaxValues = 100_000
	MaxDepth  = 1000
	MaxOpen   = 256
)

// answerTime is how long, after the end of the input, open requests may still be answered.
const answerTime = 5 * time.Second

var (
	// ErrCancelled is the cause of a request's context when the other side cancelled the request.
	ErrCancelled = &Error{Code: Cancelled, Message: "the request was cancelled"}
	// ErrClosed is the error of requests and notifications that can no longer be sent or answered.
	ErrClosed = errors.New("the connection to the other side has ended")
)

// Work carries out a request and returns its result. An error that is not an *Error is answered as an
// internal error, or with the cause of the cancellation if the request was cancelled.
type Work func(ctx context.Context) (any, error)

// Config configures a Peer. Serve and Notified are called one at a time, in the order of the
// messages, and must not block.
type Config struct {
	// A Read or Write that blocks when Run returns keeps its goroutine until the caller closes In
	// or Out.
	In  io.Reader
	Out io.Writer
	Log *slog.Logger
	// Serve returns the work of a request, which then runs concurrently, or nil for an unknown
	// method.
	Serve func(method string, params json.RawMessage) Work
	// Notified handles a notification; it may be nil.
	Notified func(method string, params json.RawMessage)
	// Cancel is the notification with which both sides cancel a request that they have made.
	Cancel string
	// Long is a method whose open requests are not waited for at the end of the input.
	Long string
}

// Peer is one side of a connection.
type Peer struct {
	cfg  Config
	out  chan outgoing
	deaf chan struct{} // deaf is closed at the end of the input
	gone chan struct{} // gone is closed when Run ends
	// work counts the goroutines of all requests, short only those whose answers settle waits for: all but those of
	// method Long.
	work, short sync.WaitGroup
	// refusing has an element for each refusal that is being written.
	refusing chan struct{}

	mu sync.Mutex
	// open are the requests of the other side that are not answered yet, each with the function
	// that cancels its context. waiting are our own requests, each with the channel for its answer.
	open    map[ID]context.CancelCauseFunc
	waiting map[ID]chan Message
	last    int64
}

// outgoing is a line to be written. done receives the outcome.
type outgoing struct {
	line []byte
	done chan error
}

// incoming is a line that was read. If it was too long, text is nil. If err is not nil, the input has ended.
type incoming struct {
	text    []byte
	tooLong bool
	err     error
}

// New makes a Peer.
func New(cfg Config) *Peer {
	return &Peer{
		cfg: cfg, out: make(chan outgoing), deaf: make(chan struct{}), gone: make(chan struct{}), refusing: make(chan struct{}, MaxOpen),
		open: map[ID]context.CancelCauseFunc{}, waiting: map[ID]chan Message{},
	}
}

// Run handles messages, once, until the input or ctx ends. At the end of the input it waits a
// moment until open requests are answered. It returns the error that ended the input, or nil if
// the input ended normally or ctx ended.
func (p *Peer) Run(ctx context.Context) error {
	defer p.work.Wait()
	defer close(p.gone)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in := make(chan incoming)
	go p.read(in)
	go p.write()
	for {
		select {
		case l := <-in:
			if l.tooLong {
				p.refuse(ctx, "", errorf(InvalidRequest, "the message is longer than 9 MiB"))
			} else if len(l.text) > 0 {
				p.take(ctx, l.text)
			}
			if l.err != nil {
				close(p.deaf)
				p.settle(ctx)
				if errors.Is(l.err, io.EOF) {
					return nil
				}
				return l.err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// read reads lines until the input ends.
func (p *Peer) read(in chan<- incoming) {
	r := bufio.NewReaderSize(p.cfg.In, 64<<10)
	for {
		l := readLine(r)
		select {
		case in <- l:
		case <-p.gone:
			return
		}
		if l.err != nil {
			return
		}
	}
}

// readLine reads a line to its end. It stores no more than MaxLine bytes.
func readLine(r *bufio.Reader) (l incoming) {
	for {
		part, err := r.ReadSlice('\n')
		if !l.tooLong {
			l.text = append(l.text, part...)
		}
		if len(l.text) > MaxLine {
			l.text, l.tooLong = nil, true
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			l.text, l.err = bytes.TrimSpace(l.text), err
			return l
		}
	}
}

// write writes the lines to the other side, one at a time.
func (p *Peer) write() {
	for {
		select {
		case o := <-p.out:
			_, err := p.cfg.Out.Write(o.line)
			o.done <- err
		case <-p.gone:
			return
		}
	}
}

// send writes a message, and returns when it is written.
func (p *Peer) send(ctx context.Context, m Message) error {
	o := outgoing{m.Encode(), make(chan error, 1)}
	select {
	case p.out <- o:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.gone:
		return ErrClosed
	}
	select {
	case err := <-o.done:
		return err
	case <-p.gone:
		return ErrClosed
	}
}

// settle waits until the requests from before the end of the input are answered, except those
// of the method Config.Long, but not longer than answerTime.
func (p *Peer) settle(ctx context.Context) {
	idle := make(chan struct{})
	p.work.Go(func() {
		p.short.Wait()
		close(idle)
	})
	t := time.NewTimer(answerTime)
	defer t.Stop()
	select {
	case <-idle:
	case <-ctx.Done():
	case <-t.C:
	}
}

// take handles a line that the other side has sent.
func (p *Peer) take(ctx context.Context, line []byte) {
	m, err := Parse(line)
	if err == nil {
		if big := bounded(line); big != nil {
			err = big
		}
	}
	switch {
	case m.Method == "" && m.ID != "":
		p.answered(m, err)
	case err != nil:
		p.refuse(ctx, m.ID, err)
	case m.Method == "":
		p.cfg.Log.Warn("the other side did not accept a message", "error", m.Error)
	case m.ID != "":
		p.serve(ctx, &m)
	case m.Method == p.cfg.Cancel:
		p.cancelled(m.Params)
	case p.cfg.Notified != nil:
		p.cfg.Notified(m.Method, m.Params)
	}
}

// refuse answers a line or a request with an error, before any work for it has begun. It does not wait until the
// answer is written: if the other side does not read, Run must still notice the end of the input.
func (p *Peer) refuse(ctx context.Context, id ID, why error) {
	p.cfg.Log.Warn("rejected a message", "id", id, "why", why)
	select {
	case p.refusing <- struct{}{}:
	case <-ctx.Done():
		return
	}
	p.short.Add(1)
	p.work.Go(func() {
		defer p.short.Done()
		defer func() { <-p.refusing }()
		_ = p.send(ctx, Message{ID: id, Error: errorOf(ctx, why)}) // an error means that the other side is gone
	})
}

// errorOf returns the error with which a request is answered whose work failed with err. If err is only the
// cancellation of ctx, the request's context, errorOf returns the cause of the cancellation if that is an *Error.
func errorOf(ctx context.Context, err error) *Error {
	var e *Error
	if errors.As(err, &e) || errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &e) {
		return e
	}
	return errorf(InternalError, "%s", err)
}

// serve starts the work of a request.
func (p *Peer) serve(ctx context.Context, m *Message) {
	working, cancel := context.WithCancelCause(ctx)
	if err := p.begin(m.ID, cancel); err != nil {
		cancel(nil)
		p.refuse(ctx, m.ID, err)
		return
	}
	work := p.cfg.Serve(m.Method, m.Params)
	if work == nil {
		work = func(context.Context) (any, error) {
			return nil, errorf(MethodNotFound, "there is no method %.60q", m.Method)
		}
	}
	short := m.Method != p.cfg.Long
	if short {
		p.short.Add(1)
	}
	p.work.Go(func() {
		if short {
			defer p.short.Done()
		}
		defer cancel(nil)
		answer := Message{ID: m.ID}
		result, err := work(working)
		if err == nil {
			answer.Result, err = json.Marshal(result)
		}
		if err != nil {
			answer.Error = errorOf(working, err)
		}
		// Sending fails only if the other side is gone or ctx has ended.
		_ = p.send(ctx, answer)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, m.ID)
	})
}

// begin records a request as open.
func (p *Peer) begin(id ID, cancel context.CancelCauseFunc) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.open[id]; ok {
		return errorf(InvalidRequest, "an earlier request with the same id is not answered yet")
	}
	if len(p.open) >= MaxOpen {
		return errorf(Busy, "%d requests are open, the most that are served at once", MaxOpen)
	}
	p.open[id] = cancel
	return nil
}

// cancelling holds the parameters of the notification that cancels a request.
type cancelling struct {
	ID ID `json:"requestId"`
}

// cancelled ends the context of a request that the other side cancels.
func (p *Peer) cancelled(params json.RawMessage) {
	var c cancelling
	if json.Unmarshal(params, &c) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if cancel := p.open[c.ID]; cancel != nil {
		cancel(ErrCancelled)
	}
}

// answered passes an answer, or the error because of which it cannot be used, to its request, if
// that still waits.
func (p *Peer) answered(m Message, err error) {
	if err != nil {
		m.Error = &Error{Code: InternalError, Message: err.Error()}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.waiting[m.ID]; c != nil {
		delete(p.waiting, m.ID)
		c <- m
	}
}

// Call makes a request, waits for the answer and decodes it into result. When ctx ends, it
// cancels the request. The error is an *Error if the other side refused the request or too many are open.
func (p *Peer) Call(ctx context.Context, method string, params, result any) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	answer := make(chan Message, 1)
	p.mu.Lock()
	if len(p.waiting) >= MaxOpen {
		p.mu.Unlock()
		return errorf(Busy, "%d requests have no answer yet, the most that are made at once", MaxOpen)
	}
	p.last++
	id := Number(p.last)
	p.waiting[id] = answer
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiting, id)
	}()
	if err := p.send(ctx, Message{ID: id, Method: method, Params: raw}); err != nil {
		return err
	}
	select {
	case m := <-answer:
		if m.Error != nil {
			return m.Error
		}
		return json.Unmarshal(m.Result, result)
	case <-p.deaf:
	case <-p.gone:
	case <-ctx.Done():
		_ = p.Notify(context.WithoutCancel(ctx), p.cfg.Cancel, cancelling{id})
		return context.Cause(ctx)
	}
	return ErrClosed
}

// Notify sends a notification.
func (p *Peer) Notify(ctx context.Context, method string, params any) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	return p.send(ctx, Message{Method: method, Params: raw})
}
