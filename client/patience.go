package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

const (
	// connectFor bounds a connection attempt, and the TLS handshake after it.
	connectFor = 10 * time.Second
	// slowFor is how many times as long an answer may take that waits for boxes or
	// files to be removed, stopped or unpacked.
	slowFor = 4
	// firstWord is how long a request may wait before Config.Waiting hears of it;
	// the pauses after that double up to longestSilence.
	firstWord      = 10 * time.Second
	longestSilence = time.Minute
)

// Wait is what Config.Waiting hears.
type Wait struct {
	// URL is the server's.
	URL string
	// For is how long the wait lasts so far.
	For time.Duration
	// Err is why the connection broke; nil when the server has not answered yet.
	Err error
	// Over reports that the server answers again.
	Over bool
}

// silent is why a request was given up: nothing came for too long.
type silent struct{ limit time.Duration }

func (s *silent) Error() string { return "nothing came for " + s.limit.String() }

// patience bounds the waits of one request: only time in which the server owes
// something counts, never time that the caller takes.
type patience struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer

	mu    sync.Mutex
	limit time.Duration
	armed bool
}

// patient makes the context of a request, which ends when the server is silent for
// too long. end must be called.
func patient(ctx context.Context, limit time.Duration) (context.Context, *patience) {
	ctx, cancel := context.WithCancelCause(ctx)
	p := &patience{cancel: cancel, limit: limit, armed: true}
	p.mu.Lock()
	p.timer = time.AfterFunc(limit, p.over)
	p.mu.Unlock()
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

// wait starts the clock, with the limit that holds from now on.
func (p *patience) wait(limit time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit, p.armed = limit, true
	p.timer.Reset(limit)
}

// rest stops the clock.
func (p *patience) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = false
	p.timer.Stop()
}

// end stops the clock and frees the context.
func (p *patience) end() {
	p.rest()
	p.cancel(nil)
}

// because is err, or the silence that caused it.
func because(ctx context.Context, err error) error {
	if s := (*silent)(nil); errors.As(context.Cause(ctx), &s) {
		return s
	}
	return err
}

// upload is a request's body: the clock stands still while the caller makes the
// bytes, and runs while the server takes them.
type upload struct {
	io.ReadCloser
	p     *patience
	limit time.Duration
}

func (u *upload) Read(b []byte) (int, error) {
	u.p.rest()
	n, err := u.ReadCloser.Read(b)
	u.p.wait(u.limit)
	return n, err
}

// download is an answer's body: the clock runs while the reader waits.
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

// opened is a download that the caller reads: its errors are those of the package.
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

// shorten sets the limit of the reads that follow.
func (d *download) shorten(limit time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limit = limit
}

func (d *download) Close() error {
	d.p.end()
	return d.ReadCloser.Close()
}

// wait tells Config.Waiting of one wait: at once when the connection broke, after
// firstWord when no answer comes, then ever more rarely.
type wait struct {
	c *Client

	mu    sync.Mutex
	began time.Time
	err   error
	pause time.Duration
	timer *time.Timer
	told  bool
}

func (c *Client) newWait() *wait { return &wait{c: c} }

// begin starts a wait, unless one lasts. err is why; nil is an answer that is due.
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

func (w *wait) tell() {
	w.mu.Lock()
	w.told = true
	said := Wait{URL: w.c.where(), For: time.Since(w.began), Err: w.err}
	w.mu.Unlock()
	w.c.cfg.Waiting(said)
}

// end ends a wait; answered says that the server is there.
func (w *wait) end(answered bool) {
	if w.c.cfg.Waiting == nil {
		return
	}
	w.mu.Lock()
	told, lasted := w.told, time.Since(w.began)
	if w.timer != nil {
		w.timer.Stop()
	}
	w.timer, w.err, w.told = nil, nil, false
	w.mu.Unlock()
	if told && answered {
		w.c.cfg.Waiting(Wait{URL: w.c.where(), For: lasted, Over: true})
	}
}

// MayHaveArrived reports whether the server may have acted on the request that an
// error is of: the connection broke, or the answer did not come in time.
func MayHaveArrived(err error) bool { return lost(err) && !refused(err) }

// Strange reports whether an error says that another server answers now.
func Strange(err error) bool { return errors.Is(err, errStrange) }

var errStrange = errors.New("another server")

// temporary reports whether trying again may help.
func temporary(err error) bool {
	return lost(err) || holdfast.IsKind(err, holdfast.KindUnavailable) || holdfast.IsKind(err, holdfast.KindBusy)
}

// stranger reports whether an answer may be another server's than the one that was
// spoken to before: it knows neither the token nor the session, or is none of ours.
func stranger(err error) bool {
	return errors.Is(err, errForeign) || holdfast.IsKind(err, holdfast.KindUnauthenticated) || holdfast.IsKind(err, holdfast.KindNotFound)
}

// errForeign marks an answer that is not in the form of a Holdfast server.
var errForeign = errors.New("not a Holdfast server")

// strange says that the server which was spoken to before may be gone.
func (c *Client) strange(err error) error {
	msg := fmt.Sprintf("another server seems to answer at %s now: %v", c.where(), err)
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		msg = fmt.Sprintf("%s knows nothing of it now, which was deleted, or another server answers there: %v", c.where(), err)
	}
	return (&holdfast.Error{Kind: holdfast.KindOf(err), Msg: msg, Err: errors.Join(errStrange, err)}).
		WithHint("start the server that was there before, with its own data directory, or name it with --url")
}
