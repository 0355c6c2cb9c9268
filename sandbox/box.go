package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// ErrLost is in the chain of the errors of pending calls when the pipe to the box breaks. Its
// kind is unavailable. The Welcome of the next connection says what became of the calls.
var ErrLost error = holdfast.Errorf(holdfast.KindUnavailable, "box", "the pipe to the box is broken").
	WithHint("the box and its calls may still run: connect again")

const (
	// releaseDelay is how long releases, and the ends of answered streams, wait for a
	// request that takes them along.
	releaseDelay = 250 * time.Millisecond
	// pipeStall is how long a write to the pipe may be blocked before the pipe counts as broken.
	pipeStall = 60 * time.Second
)

// past is a deadline in the past: set on a stream, it ends its reads and writes.
var past = time.Unix(1, 0)

// readers keeps the buffers of operations that ended, for the next operation of any box: a box
// has few operations at a time, and a long answer leaves a large buffer.
var readers = sync.Pool{New: func() any { return wire.NewReader(nil) }}

// Box is one session's side of a live connection to a boxd: its calls, listeners and
// environment are its own, and it neither sees nor releases those of other sessions in the
// same box. The Box that Dial returns is the server's side, which sees all; Of returns the
// side of a session. It is safe for concurrent use; each operation has a stream of its own.
// When the pipe breaks every pending call fails with ErrLost's kind (unavailable) and Done is
// closed; a Box never reconnects: dial again.
type Box struct {
	link    *link
	session holdfast.SessionID
}

// Of returns the side of a session on the same connection.
func (b *Box) Of(session holdfast.SessionID) *Box { return &Box{b.link, session} }

// link is the connection that the sides of a box share: its streams, its releases, and how
// long it is waited for.
type link struct {
	id       holdfast.BoxID
	welcome  wire.Welcome
	streams  *yamux.Session
	mux      *wire.Coalesced
	accepted Handler

	// adopting is held while a session takes the calls that boxd held for it; adopted are the
	// sessions that have taken theirs.
	adopting sync.Mutex
	adopted  map[holdfast.SessionID]bool

	patience Patience
	// unanswered is Dialer.Unanswered for this connection.
	unanswered func() (breaks bool)

	mu sync.Mutex
	// env is what each session gave to SetEnv.
	env map[holdfast.SessionID][]string
	// releases are calls that boxd may forget, over are streams whose answer has come and that
	// are yet to be closed. release has something when there are some of either.
	releases []wire.Released
	over     []*yamux.Stream
	release  chan struct{}
	wg       sync.WaitGroup
}

// Handler serves a connection that one of boxd's proxy listeners accepted: the one that the
// session opened under that name, with Listen. It owns conn, which has CloseWrite.
type Handler func(session holdfast.SessionID, name string, conn net.Conn)

// Dial connects to the boxd at the other end of conn: it is Dialer.Dial with the default
// Patience.
func Dial(ctx context.Context, id holdfast.BoxID, conn net.Conn, token uint64, accepted Handler) (*Box, error) {
	return Dialer{Token: token, Accepted: accepted}.Dial(ctx, id, conn)
}

// Dialer holds the settings that all connections of a server share.
type Dialer struct {
	// Token is the fencing token: boxd refuses one that is lower than the highest it has seen.
	Token uint64
	// Accepted serves the connections that boxd's proxy listeners accept; nil closes them.
	Accepted Handler
	// Patience is how long operations wait for a box that gives no sign of life.
	Patience Patience
	// Unanswered is called when a box gives no sign of life in time. It gets the Box that Dial
	// returns, maybe before Dial has returned, and reports whether the pipe is to be broken:
	// not if the box is known to stand still, because it is frozen or being stopped. Nil
	// breaks the pipe.
	Unanswered func(box *Box) (breaks bool)
}

// Dial sends the hello over conn, which it owns from then on. A stale token is conflict; a
// boxd that does not answer before ctx ends is unavailable.
func (d Dialer) Dial(ctx context.Context, id holdfast.BoxID, conn net.Conn) (*Box, error) {
	welcome, err := hello(ctx, conn, d.Token)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	cfg := yamux.DefaultConfig()
	cfg.EnableKeepAlive = false // a frozen box is not a dead one (HZ-10)
	cfg.ConnectionWriteTimeout = pipeStall
	cfg.StreamOpenTimeout = 0
	cfg.StreamCloseTimeout = 0
	cfg.LogOutput = io.Discard
	mux := wire.Coalesce(conn)
	session, err := yamux.Client(mux, cfg)
	if err != nil {
		_ = conn.Close()
		return nil, holdfast.Errorf(holdfast.KindInternal, "box hello", "%w", err)
	}
	l := &link{
		id: id, welcome: welcome, streams: session, mux: mux, accepted: d.Accepted, release: make(chan struct{}, 1), patience: d.Patience.orDefaults(),
		adopted: map[holdfast.SessionID]bool{}, env: map[holdfast.SessionID][]string{},
	}
	b := &Box{link: l}
	l.unanswered = func() bool { return d.Unanswered == nil || d.Unanswered(b) }
	l.wg.Go(l.accept)
	l.wg.Go(l.releaseLoop)
	if welcome.More {
		if l.welcome.Calls, err = b.Calls(ctx); err != nil {
			_ = b.Close()
			return nil, err
		}
		l.welcome.More = false
	}
	return b, nil
}

func hello(ctx context.Context, conn net.Conn, token uint64) (wire.Welcome, error) {
	var w wire.Welcome
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(past) })
	silent := func(err error) error {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return holdfast.Errorf(holdfast.KindUnavailable, "box hello", "boxd does not answer: %w", err)
	}
	if err := wire.WriteJSON(conn, wire.FrameHello, wire.Hello{Version: wire.Version, Token: token}); err != nil {
		stop()
		return w, silent(err)
	}
	t, payload, err := wire.ReadFrame(conn)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return w, silent(err)
	}
	if t != wire.FrameHello || json.Unmarshal(payload, &w) != nil {
		return w, holdfast.Errorf(holdfast.KindUnavailable, "box hello", "the answer is not a welcome")
	}
	if w.Err != nil {
		return w, w.Err.Err("box hello")
	}
	if w.Version != wire.Version {
		return w, holdfast.Errorf(holdfast.KindUnavailable, "box hello", "protocol version %d is not %d", w.Version, wire.Version).
			WithHint("stop the box, so that the next start uses this server's boxd")
	}
	return w, nil
}

// ID returns the box's id.
func (b *Box) ID() holdfast.BoxID { return b.link.id }

// Welcome returns boxd's answer to the hello, with all calls that it held then.
func (b *Box) Welcome() wire.Welcome { return b.link.welcome }

// Adopt calls fn with the session's calls that boxd held when this connection was made. It does
// nothing if there are none, or if an earlier fn for this session and connection returned no
// error.
func (b *Box) Adopt(fn func(held []wire.CallState) error) error {
	b.link.adopting.Lock()
	defer b.link.adopting.Unlock()
	if b.link.adopted[b.session] {
		return nil
	}
	held := slices.DeleteFunc(slices.Clone(b.link.welcome.Calls), func(c wire.CallState) bool { return c.Session != b.session })
	if len(held) > 0 {
		if err := fn(held); err != nil {
			return err
		}
	}
	b.link.adopted[b.session] = true
	return nil
}

// Boot returns the id of the start of the box that this connection speaks to: a box that is
// started again has another one.
func (b *Box) Boot() string { return b.link.welcome.Boot }

// Done returns a channel that is closed when the pipe is broken or closed.
func (b *Box) Done() <-chan struct{} { return b.link.done() }

func (l *link) done() <-chan struct{} { return l.streams.CloseChan() }

// Close closes the pipe; the box and its calls go on. Idempotent. It returns
// when the Box's own goroutines ended; a Handler may still run.
func (b *Box) Close() error {
	err := b.link.streams.Close()
	b.link.wg.Wait()
	return err
}

// SetEnv sets the environment, as NAME=value, of processes that the session starts from now
// on. It wins over the box's own environment; the environment of an ExecRequest wins over it.
func (b *Box) SetEnv(env []string) {
	b.link.mu.Lock()
	defer b.link.mu.Unlock()
	b.link.env[b.session] = env
}

// envOf returns the environment that a session has set.
func (l *link) envOf(session holdfast.SessionID) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.env[session]
}

// Call identifies a mutating operation. The zero Call is refused.
type Call struct {
	ID holdfast.CallID
}

// conv is one operation under way: its stream, and the watch that ends it.
type conv struct {
	link   *link
	ctx    context.Context
	op     wire.Op
	stream *yamux.Stream
	r      *wire.Reader
	stop   func() bool
	watch  *watch
	// answered: boxd has sent its answer, after which nothing comes.
	answered bool
}

// open opens a stream and sends the request of a session; data follows it in the same write.
func (l *link) open(ctx context.Context, session holdfast.SessionID, req wire.Request, data []byte, o owed) (*conv, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	req.Session, req.Release = session, l.unsentReleases()
	switch req.Op {
	case wire.OpRead, wire.OpWrite, wire.OpEdit, wire.OpStat, wire.OpList, wire.OpGlob, wire.OpGrep, wire.OpRemove, wire.OpMkdir, wire.OpRename,
		wire.OpPack, wire.OpUnpack:
		req.Scope = scopeOf(ctx)
	}
	buf, err := wire.AppendJSON(make([]byte, 0, 512+len(data)), wire.FrameRequest, req)
	if err != nil {
		return nil, err
	}
	w := l.watch(session, o)
	stream, err := l.streams.OpenStream()
	if err != nil {
		w.end()
		return nil, unsent(l.lost(err))
	}
	w.opened(stream)
	c := &conv{link: l, ctx: ctx, op: req.Op, stream: stream, r: readers.Get().(*wire.Reader), watch: w}
	c.r.Reset(stream)
	c.stop = context.AfterFunc(ctx, func() { interrupt(stream) })
	l.endStreams(true)
	if _, err := stream.Write(append(buf, data...)); err != nil {
		// The multiplexer may have sent what it gave up waiting for, but nothing of a
		// write that the pipe itself refused.
		broke := !errors.Is(err, yamux.ErrSessionShutdown) && !errors.Is(err, yamux.ErrConnectionWriteTimeout)
		if err = c.fail(err); broke && ctx.Err() == nil && len(data) == 0 {
			err = unsent(err)
		}
		c.close()
		return nil, err
	}
	return c, nil
}

type scopeKey struct{}

// Scope limits which paths the file operations of a tool may touch in a box. A path must lie
// below a root of each list of Within and below none of Denied, and neither match one of
// Patterns nor lie below a match. Roots are absolute; wire.Scope says how patterns are
// written. The zero value allows everything.
type Scope struct {
	Denied   []string
	Within   [][]string
	Patterns []string
}

// Scoped returns a context under which the file operations of any box touch only what a
// scope allows. The caller that runs a tool sets it, so that no tool can leave it out.
// scope is called before each file operation, and only then.
func Scoped(ctx context.Context, scope func() Scope) context.Context {
	return context.WithValue(ctx, scopeKey{}, scope)
}

// scopeOf returns the scope of an operation; nil allows everything.
func scopeOf(ctx context.Context) *wire.Scope {
	scope, ok := ctx.Value(scopeKey{}).(func() Scope)
	if !ok {
		return nil
	}
	s := scope()
	if len(s.Denied)+len(s.Within)+len(s.Patterns) == 0 {
		return nil
	}
	return &wire.Scope{Denied: s.Denied, Within: s.Within, Patterns: s.Patterns}
}

// close ends the stream, an answered one with the next request. Nothing may use the
// reader's payloads after it.
func (c *conv) close() {
	c.stop()
	c.watch.end()
	if c.answered {
		c.link.ended(c.stream)
	} else {
		_ = c.stream.Close()
	}
	c.r.Reset(nil)
	readers.Put(c.r)
}

// fail returns why the stream failed: the caller's context ended, boxd refused, or the pipe broke.
func (c *conv) fail(err error) error {
	if c.ctx.Err() != nil {
		return c.ctx.Err()
	}
	if verdict := c.watch.end(); verdict != nil {
		return verdict
	}
	var refused *holdfast.Error
	if errors.As(err, &refused) {
		return err
	}
	return c.link.lost(err)
}

// lost is the error of an operation whose pipe broke.
func (l *link) lost(err error) error {
	if errors.Is(err, yamux.ErrConnectionWriteTimeout) {
		go l.giveUp() // part of a frame may be out: the pipe cannot be used on
	}
	e := *ErrLost.(*holdfast.Error)
	e.Msg, e.Err = e.Msg+": "+err.Error(), ErrLost
	return &e
}

// unsent marks the error of a call that was never sent.
func unsent(err error) error {
	var e *holdfast.Error
	if !errors.As(err, &e) || !errors.Is(err, ErrLost) {
		return err
	}
	marked := *e
	marked.Err, marked.Hint = ErrUnsent, holdfast.HintOf(ErrUnsent)
	return &marked
}

// answer reads the answer, which is the last message of the stream, into v.
func (c *conv) answer(v any) error {
	t, payload, err := c.r.NextLong()
	if err != nil {
		return c.fail(err)
	}
	return c.decode(t, payload, v)
}

func (c *conv) decode(t wire.FrameType, payload []byte, v any) error {
	c.answered = t == wire.FrameAnswer || t == wire.FrameError
	switch t {
	case wire.FrameAnswer:
		if err := json.Unmarshal(payload, v); err != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, "box "+string(c.op), "answer: %w", err)
		}
		return nil
	case wire.FrameError:
		var e wire.Error
		if err := json.Unmarshal(payload, &e); err != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, "box "+string(c.op), "answer: %w", err)
		}
		return e.Err("box " + string(c.op))
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "box "+string(c.op), "unexpected frame %q", byte(t))
}

// ask sends an operation that has one request and one answer.
func ask[A any](ctx context.Context, b *Box, req wire.Request) (A, error) {
	var a A
	c, err := b.link.open(ctx, b.session, req, nil, b.link.patience.operation())
	if err != nil {
		return a, err
	}
	defer c.close()
	return a, c.answer(&a)
}

func request(op wire.Op, body any) (wire.Request, error) {
	raw, err := json.Marshal(body)
	return wire.Request{Op: op, Body: raw}, err
}

// query sends an operation that needs no call id: it may be repeated.
func query[A any](ctx context.Context, b *Box, op wire.Op, body any) (A, error) {
	req, err := request(op, body)
	if err != nil {
		var a A
		return a, err
	}
	return ask[A](ctx, b, req)
}

// mutate sends an operation that boxd carries out once for each call id.
func mutate[A any](ctx context.Context, b *Box, call Call, op wire.Op, body any) (A, error) {
	var a A
	if err := call.check(op); err != nil {
		return a, err
	}
	req, err := request(op, body)
	if err != nil {
		return a, err
	}
	req.Call, req.Hash = call.ID, wire.ArgumentHash(op, req.Body)
	return ask[A](ctx, b, req)
}

func (c Call) check(op wire.Op) error {
	if c.ID == "" {
		return holdfast.Errorf(holdfast.KindInvalid, "box "+string(op), "a mutating operation needs a call id")
	}
	return nil
}
