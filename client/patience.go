package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

const (
	// connectFor bounds a connection attempt, and the TLS handshake after it.
	connectFor = 10 * time.Second
	// slowFor is the factor for answers that wait for boxes or files to be removed,
	// stopped or unpacked.
	slowFor = 4
	// firstWord is how long a request waits before the first call of Config.Waiting; later
	// pauses double up to longestSilence.
	firstWord      = 10 * time.Second
	longestSilence = time.Minute
)

// Wait is the argument of Config.Waiting.
type Wait struct {
	// URL is the server's URL.
	URL string
	// For is how long the wait has lasted.
	For time.Duration
	// Err is why the connection broke, or holdfast.ErrFull when the server has no place
	// for another box; nil when the server has not answered yet.
	Err error
	// Over: the server answers again.
	Over bool
}

// String describes the wait in words.
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
		return fmt.Sprintf("waiting for %s, which has not answered for %s", w.URL, lasted)
	case lasted == 0:
		return fmt.Sprintf("waiting for %s to come back: %v", w.URL, w.Err)
	}
	return fmt.Sprintf("waiting for %s to come back, for %s now: %v", w.URL, lasted, w.Err)
}

// silent is the error of a request that was given up because nothing came for too long.
type silent struct{ limit time.Duration }

func (s *silent) Error() string { return "nothing came for " + s.limit.String() }

// patience bounds the waits of one request: only time in which the server owes an
// answer counts, never time that the caller uses.
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

// wait starts the clock with a new limit.
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

// because returns err, or the silence that caused it.
func because(ctx context.Context, err error) error {
	if s := (*silent)(nil); errors.As(context.Cause(ctx), &s) {
		return s
	}
	return err
}

// upload is a request's body: the clock stops while the caller makes the bytes, and
// runs while the server reads them.
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

// opened is a download that the caller reads: its errors are of this package's kinds.
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

// wait calls Config.Waiting during one wait: at once when the connection broke, after
// firstWord when no answer comes, then less and less often.
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

// rest stops the clock of a wait while a body is read: its next bytes are the caller's to
// give. anew starts it again, from zero: the server has taken those before.
func (w *wait) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
}

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

func (w *wait) tell() {
	w.mu.Lock()
	w.told = true
	said := Wait{URL: w.c.where(), For: time.Since(w.began), Err: w.err}
	w.mu.Unlock()
	w.c.cfg.Waiting(said)
}

// end ends a wait; answered: the server answers.
func (w *wait) end(answered bool) {
	if w.c.cfg.Waiting == nil {
		return
	}
	w.mu.Lock()
	// A server that was full was there all the time.
	told, lasted := w.told && !errors.Is(w.err, holdfast.ErrFull), time.Since(w.began)
	if w.timer != nil {
		w.timer.Stop()
	}
	w.timer, w.err, w.told = nil, nil, false
	w.mu.Unlock()
	if told && answered {
		w.c.cfg.Waiting(Wait{URL: w.c.where(), For: lasted, Over: true})
	}
}

// MayHaveArrived reports whether the server may have acted on a request that failed
// with err: the connection broke, or the answer did not come in time.
func MayHaveArrived(err error) bool { return lost(err) && !refused(err) }

// Strange reports whether an error says that another server answers now.
func Strange(err error) bool { return errors.Is(err, errStrange) }

var errStrange = errors.New("another server")

// full is a server without a place for another box, and when it says to come back.
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

// RetryAfter is how long a full server asked to wait; 0 for other errors.
func RetryAfter(err error) time.Duration {
	if f := (*full)(nil); errors.As(err, &f) {
		return f.after
	}
	return 0
}

// temporary reports whether trying again may help.
func temporary(err error) bool {
	return lost(err) || holdfast.IsKind(err, holdfast.KindUnavailable) || holdfast.IsKind(err, holdfast.KindBusy)
}

// stranger reports whether an answer may come from another server than the one before:
// it knows neither the token nor the session, or is not a Holdfast server.
func stranger(err error) bool {
	return errors.Is(err, errForeign) || holdfast.IsKind(err, holdfast.KindUnauthenticated) || holdfast.IsKind(err, holdfast.KindNotFound)
}

// errForeign marks an answer that is not in the form of a Holdfast server.
var errForeign = errors.New("not a Holdfast server")

// strange returns an error which says that the former server may be gone.
func (c *Client) strange(err error) error {
	msg := fmt.Sprintf("another server seems to answer at %s now: %v", c.where(), err)
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		msg = fmt.Sprintf("%s knows nothing of it now, which was deleted, or another server answers there: %v", c.where(), err)
	}
	return (&holdfast.Error{Kind: holdfast.KindOf(err), Msg: msg, Err: errors.Join(errStrange, err)}).
		WithHint("start the server that was there before, with its own data directory, or name it with --url")
}
