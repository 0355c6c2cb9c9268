package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// ErrLost is in the chain of the error that pending calls return when the connection to the
// box breaks. Its kind is unavailable. The calls may still run or have ended: the Welcome of
// the next connection lists those that boxd holds.
var ErrLost error = holdfast.Errorf(holdfast.KindUnavailable, "box", "the connection to the box broke").
	WithHint("the box and its calls may still run: connect to the box again")

const (
	// releaseDelay is how long releases of calls, and the closing of answered streams, wait for
	// another request with which they can be sent.
	releaseDelay = 250 * time.Millisecond
	// pipeStall is how long a write to the connection may block before it counts as broken.
	pipeStall = 60 * time.Second
)

// past is a deadline in the past: set on a stream, it ends its reads and writes.
var past = time.Unix(1, 0)

// readers holds the buffers of finished operations for reuse by operations of any box, because
// one long answer makes a buffer large and a box has few operations at a time.
var readers = sync.Pool{New: func() any { return wire.NewReader(nil) }}

// Box is a connection to the boxd of a box, used on behalf of one session. It has access to the
// calls, listeners and environment of that session only, not to those of other sessions in the
// same box. The Box that Dial returns is the server's own and has access to all; Of returns the
// Box of a session. A Box is safe for concurrent use; each operation has its own stream. If the
// connection breaks, every pending call fails with ErrLost in its error chain (kind
// unavailable) and Done is closed. A Box never reconnects: dial again.
type Box struct {
	link    *link
	session holdfast.SessionID
}

// Of returns a Box that uses the same connection on behalf of a session.
func (b *Box) Of(session holdfast.SessionID) *Box { return &Box{b.link, session} }

// link is the connection that the Boxes of all sessions share: its streams, the gathered
// releases, and how long operations wait for a silent box.
type link struct {
	id       holdfast.BoxID
	welcome  wire.Welcome
	streams  *yamux.Session
	mux      *wire.Coalesced
	accepted Handler

	// adopting is locked while Adopt runs. adopted holds the sessions for which Adopt has
	// succeeded on this connection.
	adopting sync.Mutex
	adopted  map[holdfast.SessionID]bool

	patience Patience
	// unanswered calls Dialer.Unanswered with the Box of this connection; it returns whether to break the connection.
	unanswered func() (breaks bool)

	mu sync.Mutex
	// env holds the environment variables that each session has set with SetEnv.
	env  map[holdfast.SessionID][]string
	life vitals
	// releases are finished calls that boxd may forget; over are answered streams that are not
	// closed yet. release wakes releaseLoop when an entry is added to either.
	releases []wire.Released
	over     []*yamux.Stream
	release  chan struct{}
	// requests is the number of requests so far: each takes up to releaseMost of the gathered releases to boxd.
	requests atomic.Int64
	wg       sync.WaitGroup
}

// Handler serves a connection that one of boxd's proxy listeners accepted. session and name
// identify the listener: the session opened it under that name with Listen. The Handler has to
// close conn, which also has a CloseWrite method.
type Handler func(session holdfast.SessionID, name string, conn net.Conn)

// Dial makes a Box over conn, a new connection to a boxd. It is Dialer.Dial with the default
// Patience.
func Dial(ctx context.Context, id holdfast.BoxID, conn net.Conn, token uint64, accepted Handler) (*Box, error) {
	return Dialer{Token: token, Accepted: accepted}.Dial(ctx, id, conn)
}

// Dialer holds the settings that all connections of a server share.
type Dialer struct {
	// Token is the server's fencing token. boxd refuses a server whose token is lower than the
	// highest it has received.
	Token uint64
	// Accepted serves the connections that boxd's proxy listeners accept; nil closes them.
	Accepted Handler
	// Patience is how long operations wait for a box that gives no sign of life.
	Patience Patience
	// Unanswered is called when a box gives no sign of life in time. It gets the Box that Dial
	// returns, possibly before Dial has returned, and reports whether to break the connection.
	// It should return false if the box is frozen or being stopped. Nil breaks the connection.
	Unanswered func(box *Box) (breaks bool)
}

// Dial sends the hello over conn and returns the Box. It takes ownership of conn, and closes it
// on an error. The error's kind is conflict if the token is stale, and unavailable if boxd does
// not answer before ctx ends.
func (d Dialer) Dial(ctx context.Context, id holdfast.BoxID, conn net.Conn) (*Box, error) {
	welcome, err := hello(ctx, conn, d.Token)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	cfg := yamux.DefaultConfig()
	cfg.EnableKeepAlive = false // a frozen box answers no keep-alives, but is not dead (HZ-10)
	cfg.ConnectionWriteTimeout = pipeStall
	cfg.StreamOpenTimeout = 0
	cfg.StreamCloseTimeout = 0
	cfg.LogOutput = io.Discard
	mux := wire.Coalesce(conn)
	session, err := yamux.Client(mux, cfg)
	if err != nil {
		_ = conn.Close()
		return nil, holdfast.Errorf(holdfast.KindInternal, "box hello", "cannot set up the connection to boxd: %w", err)
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
		return holdfast.Errorf(holdfast.KindUnavailable, "box hello", "boxd does not answer the server's hello: %w", err)
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
		return w, holdfast.Errorf(holdfast.KindUnavailable, "box hello", "boxd's answer to the server's hello is not a valid welcome message")
	}
	if w.Err != nil {
		return w, w.Err.Err("box hello")
	}
	if w.Version != wire.Version {
		return w, holdfast.Errorf(holdfast.KindUnavailable, "box hello", "boxd speaks protocol version %d, but this server speaks version %d", w.Version, wire.Version).
			WithHint("stop the box, so that the next start uses this server's boxd")
	}
	return w, nil
}

// ID returns the box's id.
func (b *Box) ID() holdfast.BoxID { return b.link.id }

// Welcome returns boxd's answer to the hello. It lists all calls that boxd held at that time.
func (b *Box) Welcome() wire.Welcome { return b.link.welcome }

// Adopt calls fn with the calls of the session that boxd held when this connection was made. It
// does nothing if boxd held none, or if Adopt has succeeded for this session and connection.
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

// Boot returns the id of the box's current boot: each start of the box has a new one.
func (b *Box) Boot() string { return b.link.welcome.Boot }

// Done returns a channel that is closed when the connection is broken or closed.
func (b *Box) Done() <-chan struct{} { return b.link.done() }

func (l *link) done() <-chan struct{} { return l.streams.CloseChan() }

// Close closes the connection; the box and its calls continue. It returns when the goroutines that serve
// the connection have ended; a Handler, or an operation that now fails, may still run. Close is idempotent.
func (b *Box) Close() error {
	err := b.link.streams.Close()
	b.link.wg.Wait()
	return err
}

// SetEnv sets environment variables, as NAME=value, for processes that the session starts from
// now on. They override the box's environment; those of an ExecRequest override them.
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

// Call identifies an operation that changes something in the box: boxd carries out each id at
// most once. The zero Call is refused.
type Call struct {
	ID holdfast.CallID
}

// conv is one operation in progress: its stream, and the watch that ends it if the box hangs.
type conv struct {
	link   *link
	ctx    context.Context
	op     wire.Op
	stream *yamux.Stream
	r      *wire.Reader
	stop   func() bool
	watch  *watch
	// answered is true once boxd has sent its answer, the last frame of the stream.
	answered bool
}

// open opens a stream and sends the request of a session; data follows it in the same write.
func (l *link) open(ctx context.Context, session holdfast.SessionID, req wire.Request, data []byte, o owed) (*conv, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	req.Session, req.Release = session, l.unsentReleases()
	l.requests.Add(1)
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
	l.issue(req.Op)
	c := &conv{link: l, ctx: ctx, op: req.Op, stream: stream, r: readers.Get().(*wire.Reader), watch: w}
	c.r.Reset(stream)
	c.stop = context.AfterFunc(ctx, func() { interrupt(stream) })
	l.endStreams(true)
	if _, err := stream.Write(append(buf, data...)); err != nil {
		// After a timeout or shutdown the multiplexer may still have sent the request. Any other
		// error means that the connection refused the write, so that nothing was sent.
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

// Scope limits which paths in a box the file operations of a tool may access. A path must lie below a root of each
// list in Within and below no path in Denied. It must neither match a pattern in Patterns nor lie below a match.
// Roots are absolute; wire.Scope describes the patterns. A path may not lie in one of Agents, which are directories
// relative to the home. The zero value allows everything.
type Scope struct {
	Denied   []string
	Within   [][]string
	Patterns []string
	Agents   []string
}

// Scoped returns a context in which the file operations of every box are limited to a scope.
// The code that runs a tool sets it, so that a tool cannot omit it. scope is called before
// each file operation.
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
	if len(s.Denied)+len(s.Within)+len(s.Patterns)+len(s.Agents) == 0 {
		return nil
	}
	return &wire.Scope{Denied: s.Denied, Within: s.Within, Patterns: s.Patterns, Agents: s.Agents}
}

// close ends the operation's stream; an answered stream is closed together with the next
// request. Payloads from the operation's reader must not be used afterwards.
func (c *conv) close() {
	c.stop()
	c.watch.end()
	if c.answered {
		c.link.gather(func(l *link) { l.over = append(l.over, c.stream) })
	} else {
		_ = c.stream.Close()
		go c.link.drain(c.stream)
	}
	c.r.Reset(nil)
	readers.Put(c.r)
}

// mostUnread is how many bytes boxd may send after the server has given up an operation: more than the longest answer.
const mostUnread = 2 * wire.MaxLong

// drain reads what boxd still sends on the closed stream of an operation that was given up, until boxd closes the
// stream too. Without that, boxd could not finish a long answer, and both ends would hold the stream until the
// connection ends. A box that sends more than mostUnread bytes loses the connection.
func (l *link) drain(s *yamux.Stream) {
	left := io.LimitReader(s, mostUnread+1)
	for {
		_ = s.SetReadDeadline(time.Time{})
		_, err := io.Copy(io.Discard, left)
		if err == nil && left.(*io.LimitedReader).N == 0 {
			_ = l.streams.Close()
		}
		if !errors.Is(err, yamux.ErrTimeout) {
			return
		}
		// The end of the caller's context has set the read deadline again: clear it and read on.
	}
}

// fail returns why the operation failed: the caller's context ended, the watch ended it, boxd
// refused it, or the connection broke.
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

// lost returns the error of an operation during which the connection broke with err.
func (l *link) lost(err error) error {
	if errors.Is(err, yamux.ErrConnectionWriteTimeout) {
		go l.giveUp() // a part of a frame may have been sent: the connection is unusable
	}
	e := *ErrLost.(*holdfast.Error)
	e.Msg, e.Err = e.Msg+": "+err.Error(), ErrLost
	return &e
}

// unsent returns err, if it is ErrLost, with ErrUnsent in its chain: the call was never sent.
func unsent(err error) error {
	var e *holdfast.Error
	if !errors.As(err, &e) || !errors.Is(err, ErrLost) {
		return err
	}
	marked := *e
	marked.Err, marked.Hint = ErrUnsent, holdfast.HintOf(ErrUnsent)
	return &marked
}

// answer reads boxd's answer, which is the last message of the stream, and decodes it into v.
func (c *conv) answer(v any) error {
	t, payload, err := c.next(c.r.NextLong)
	if err != nil {
		return c.fail(err)
	}
	return c.decode(t, payload, v)
}

// next reads the next message with read. If the message is boxd's count of processes (Alive), next records the
// count and reads on.
func (c *conv) next(read func() (wire.FrameType, []byte, error)) (wire.FrameType, []byte, error) {
	for {
		t, payload, err := read()
		if err != nil || t != wire.FrameAlive {
			return t, payload, err
		}
		var alive wire.Alive
		if err := json.Unmarshal(payload, &alive); err != nil {
			return 0, nil, err
		}
		c.link.heard(alive)
	}
}

func (c *conv) decode(t wire.FrameType, payload []byte, v any) error {
	c.answered = t == wire.FrameAnswer || t == wire.FrameError
	switch t {
	case wire.FrameAnswer:
		if err := json.Unmarshal(payload, v); err != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, "box "+string(c.op), "cannot decode boxd's answer: %w", err)
		}
		return nil
	case wire.FrameError:
		var e wire.Error
		if err := json.Unmarshal(payload, &e); err != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, "box "+string(c.op), "cannot decode an error that boxd sent: %w", err)
		}
		return e.Err("box " + string(c.op))
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "box "+string(c.op), "boxd sent a frame of the unexpected type %q", byte(t))
}

// ask sends the request of an operation and returns its one answer.
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

// query sends an operation that changes nothing or may be repeated, so that it needs no call id.
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
		return holdfast.Errorf(holdfast.KindInvalid, "box "+string(op), "operation %s changes the box and needs a call id, but has none", op)
	}
	return nil
}
