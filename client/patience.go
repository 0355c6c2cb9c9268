package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
)

const (
	// connectFor is how long an attempt to connect may take, and how long the TLS handshake after it may take.
	connectFor = 10 * time.Second
	// slowFor multiplies Config.FirstByte for requests that wait for work of the server on boxes or
	// files.
	slowFor = 4
	// firstWord is how long a request waits for an answer before the first call of Config.Waiting,
	// unless its connection breaks earlier. The pauses between further calls double, up to
	// longestSilence.
	firstWord      = 10 * time.Second
	longestSilence = time.Minute
)

// Wait describes how a request or stream waits for the server. It is the argument of
// Config.Waiting.
type Wait struct {
	// URL is the server's URL.
	URL string
	// For is how long the wait has lasted.
	For time.Duration
	// Err is why the connection broke, or has holdfast.ErrFull in its chain if the server can
	// run no more boxes; nil if the server has just not answered yet.
	Err error
	// Over is true if the connection had broken and the server answers again.
	Over bool
}

// String returns a sentence for people about the wait.
func (w Wait) String() string {
	lasted := w.For.Round(time.Second)
	switch {
	case errors.Is(w.Err, holdfast.ErrFull) && lasted == 0:
		return fmt.Sprintf("waiting for a place: %v", w.Err)
	case errors.Is(w.Err, holdfast.ErrFull):
		return fmt.Sprintf("waiting for a place, for %s now: %v", lasted, w.Err)
	case w.Over:
		return fmt.Sprintf("%s answers again", w.URL)
	case w.Err == nil:
		return fmt.Sprintf("waiting for an answer of %s, for %s now", w.URL, lasted)
	case lasted == 0:
		return fmt.Sprintf("waiting for %s to come back: %v", w.URL, w.Err)
	}
	return fmt.Sprintf("waiting for %s to come back, for %s now: %v", w.URL, lasted, w.Err)
}

// silent is the error of a request that was canceled because the server sent nothing for the
// time limit.
type silent struct{ limit time.Duration }

func (s *silent) Error() string { return "nothing came for " + s.limit.String() + " from the server" }

// patience limits the waiting of one request. Its clock runs only while the server has to send
// or read something, not while the caller is busy.
type patience struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer
	// connected is true once a connection to the server was made. The error of a request does not say whether one was
	// made: http.Transport repeats a request with a key by itself, and returns the error of the last attempt.
	connected atomic.Bool

	mu    sync.Mutex
	limit time.Duration
	armed bool
}

// patient returns a context for a request, which ends if the server is silent for longer than
// the limit, and the patience that controls it. The caller must call patience.end.
func patient(ctx context.Context, limit time.Duration) (context.Context, *patience) {
	ctx, cancel := context.WithCancelCause(ctx)
	p := &patience{cancel: cancel, limit: limit, armed: true}
	p.mu.Lock()
	p.timer = time.AfterFunc(limit, p.over)
	p.mu.Unlock()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { p.connected.Store(true) }})
	return ctx, p
}

func (p *patience) over() {
	p.mu.Lock()
	limit, armed := p.limit, p.armed
	p.mu.Unlock()
	if armed {
		p.cancel(&silent{limit})
	}
}

// wait starts the time limit again, with a new duration.
func (p *patience) wait(limit time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit, p.armed = limit, true
	p.timer.Reset(limit)
}

// rest stops the time limit until wait is called.
func (p *patience) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = false
	p.timer.Stop()
}

// end stops the time limit and cancels the context of the request.
func (p *patience) end() {
	p.rest()
	p.cancel(nil)
}

// because returns the *silent error if the server's silence ended ctx, else err.
func because(ctx context.Context, err error) error {
	if s := (*silent)(nil); errors.As(context.Cause(ctx), &s) {
		return s
	}
	return err
}

// upload is the body of a request: the clocks stop while the caller produces bytes, and run
// while the server reads them.
type upload struct {
	io.ReadCloser
	p     *patience
	w     *wait
	limit time.Duration
}

func (u *upload) Read(b []byte) (int, error) {
	u.p.rest()
	u.w.rest()
	n, err := u.ReadCloser.Read(b)
	u.p.wait(u.limit)
	u.w.anew()
	return n, err
}

// download is the body of an answer: the clock runs while a Read waits for the server.
type download struct {
	io.ReadCloser
	ctx context.Context
	p   *patience

	mu    sync.Mutex
	limit time.Duration
}

func (d *download) Read(b []byte) (int, error) {
	d.mu.Lock()
	limit := d.limit
	d.mu.Unlock()
	d.p.wait(limit)
	n, err := d.ReadCloser.Read(b)
	d.p.rest()
	if err != nil && !errors.Is(err, io.EOF) {
		err = because(d.ctx, err)
	}
	return n, err
}

// opened is an answer's body that the package's user reads. Its Read returns *holdfast.Error.
type opened struct {
	io.ReadCloser
	ctx context.Context
	r   call
}

func (o *opened) Read(b []byte) (int, error) {
	n, err := o.ReadCloser.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = broken(o.ctx, o.r, err)
	}
	return n, err
}

// shorten sets the time limit of later reads.
func (d *download) shorten(limit time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limit = limit
}

func (d *download) Close() error {
	d.p.end()
	return d.ReadCloser.Close()
}

// wait calls Config.Waiting while a request or stream waits for the server: at once if the
// connection broke, after firstWord if no answer came, then at growing intervals.
type wait struct {
	c *Client

	// calling has room for one value: a goroutine puts it in before it calls Config.Waiting, and takes it out afterwards.
	calling chan struct{}

	mu    sync.Mutex
	began time.Time
	err   error
	pause time.Duration
	timer *time.Timer
	told  bool
}

func (c *Client) newWait() *wait { return &wait{c: c, calling: make(chan struct{}, 1)} }

// begin starts a wait, unless one is in progress. err is the cause; nil means that an
// answer is due.
func (w *wait) begin(err error) {
	if w.c.cfg.Waiting == nil {
		return
	}
	w.mu.Lock()
	news := err != nil && w.err == nil
	if err != nil {
		w.err = err
	}
	if w.timer == nil {
		w.began, w.pause = time.Now(), firstWord
		w.timer = time.AfterFunc(firstWord, w.again)
	}
	w.mu.Unlock()
	if news {
		w.tell()
	}
}

// rest stops the clock of a wait while the caller produces the next bytes of a request's body.
func (w *wait) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
}

// anew restarts the clock of a wait from zero, because the server has read all earlier bytes of a
// request's body.
func (w *wait) anew() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.began, w.pause = time.Now(), firstWord
		w.timer.Reset(firstWord)
	}
}

func (w *wait) again() {
	w.mu.Lock()
	going := w.timer != nil
	if going {
		w.pause = min(2*w.pause, longestSilence)
		w.timer.Reset(w.pause)
	}
	w.mu.Unlock()
	if going {
		w.tell()
	}
}

// tell calls Config.Waiting, after a call that another goroutine has begun, and unless the wait has ended meanwhile.
func (w *wait) tell() {
	w.calling <- struct{}{}
	defer func() { <-w.calling }()
	w.mu.Lock()
	if w.timer == nil {
		w.mu.Unlock()
		return
	}
	w.told = true
	said := Wait{URL: w.c.where(), For: time.Since(w.began), Err: w.err}
	w.mu.Unlock()
	w.c.cfg.Waiting(said)
}

// end ends a wait. answered is true if the server has answered.
func (w *wait) end(answered bool) {
	if w.c.cfg.Waiting == nil {
		return
	}
	w.calling <- struct{}{}
	defer func() { <-w.calling }()
	w.mu.Lock()
	// A full or slow server could be reached all the time: do not report that it answers again.
	told, lasted := w.told && w.err != nil && !errors.Is(w.err, holdfast.ErrFull), time.Since(w.began)
	if w.timer != nil {
		w.timer.Stop()
	}
	w.timer, w.err, w.told = nil, nil, false
	w.mu.Unlock()
	if told && answered {
		w.c.cfg.Waiting(Wait{URL: w.c.where(), For: lasted, Over: true})
	}
}

// MayHaveArrived reports whether the server may have acted on a request that failed with err: a connection was
// made, but it broke, or the answer did not come in time or not whole.
func MayHaveArrived(err error) bool { return errors.Is(err, errSent) }

// Strange reports whether an error says that another server seems to answer at the URL now.
func Strange(err error) bool { return errors.Is(err, errStrange) }

var errStrange = errors.New("another server seems to answer at this URL")

// full is the error of a server that can run no more boxes; after is how long it asked to wait
// before trying again.
type full struct{ after time.Duration }

func (*full) Error() string { return holdfast.ErrFull.Error() }

func (*full) Unwrap() error { return holdfast.ErrFull }

func fullUntil(h http.Header) error {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 1 {
		seconds = 1
	}
	return &full{time.Duration(min(seconds, 3600)) * time.Second}
}

// RetryAfter returns how long a server that can run no more boxes asked to wait before trying
// again; 0 for other errors.
func RetryAfter(err error) time.Duration {
	if f := (*full)(nil); errors.As(err, &f) {
		return f.after
	}
	return 0
}

// temporary reports whether repeating a failed request may help: its error is a lost connection, unavailable or busy.
func temporary(err error) bool {
	return lost(err) || holdfast.IsKind(err, holdfast.KindUnavailable) || holdfast.IsKind(err, holdfast.KindBusy)
}

// stranger reports whether an error suggests that another server answered than before: one that
// does not know the token or the session, or that is not a Holdfast server.
func stranger(err error) bool {
	return errors.Is(err, errForeign) || holdfast.IsKind(err, holdfast.KindUnauthenticated) || holdfast.IsKind(err, holdfast.KindNotFound)
}

// errForeign marks an answer that does not have the form of a Holdfast server's answers.
var errForeign = errors.New("the answer is not from a Holdfast server")

// strange wraps err in an error which says that another server may now answer at the URL.
func (c *Client) strange(err error) error {
	msg := fmt.Sprintf("another server seems to answer at %s now: %v", c.where(), err)
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		msg = fmt.Sprintf("%s does not find what was there before: it was deleted, or another server answers there now: %v", c.where(), err)
	}
	return (&holdfast.Error{Kind: holdfast.KindOf(err), Msg: msg, Err: errors.Join(errStrange, err)}).
		WithHint("start the server that answered before, with its own data directory, or give its URL with --url")
}
