package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/remote"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/internal/egress/meter"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

const (
	// writeTimeout is how long the client in the box may take to accept a part of an answer; piece is the most
	// bytes of an answer without streaming that are sent as one part.
	writeTimeout = 60 * time.Second
	piece        = 1 << 20
	// maxAnswer is the largest answer that is not streamed, maxRefusal the largest error answer, both in
	// bytes.
	maxAnswer  = 64 << 20
	maxRefusal = 64 << 10
	// longWait is the longest Retry-After of a provider after which the client in the box may try again by itself.
	longWait = time.Minute
)

// call is one model request of a box, from its check to its answer.
type call struct {
	b        *Broker
	r        *http.Request
	w        http.ResponseWriter
	e        endpoint
	t        runtime.Traffic
	id       holdfast.SessionID
	provider string
	up       Upstream
	ask      ask
	size     int64
	key      string
	hide     *hider

	settle  func(holdfast.Usage, bool)
	meter   meter.Meter
	began   time.Time
	first   time.Time
	request string
	closed  bool
	// said is the beginning of the provider's answer, if the broker records content.
	said []byte
}

// run reserves the cost of the call in the budget, sends the request to the provider and answers the box.
// However the call ends, the reservation is settled.
func (c *call) run(ctx context.Context) error {
	c.began = c.b.cfg.Now()
	c.meter = c.e.api.meter()
	c.settle, c.hide = func(holdfast.Usage, bool) {}, &hider{}
	if !c.e.free {
		settle, err := c.t.Reserve(c.most())
		if err != nil {
			return err
		}
		c.settle = settle
	}
	resp, err := c.send(ctx)
	if err != nil {
		return c.failed(ctx, err)
	}
	defer resp.Body.Close()
	c.request = remote.Clean(string(c.hide.all([]byte(remote.Header(resp.Header, "Request-Id", "X-Request-Id")))))
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		// The token meter and the search for the API key cannot read compressed bytes.
		return c.failed(ctx, fmt.Errorf("the model provider's answer is encoded as %s, which was not requested", holdfast.Quote(enc)))
	}
	if resp.StatusCode != http.StatusOK {
		return c.refused(resp)
	}
	c.b.limited(c.id, nil)
	if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t == "text/event-stream" {
		return c.stream(ctx, resp)
	}
	return c.whole(ctx, resp)
}

// most returns the highest usage and cost that the call can have. Its input is estimated as a token for every
// four bytes of the request, priced as input or as cache writes, whichever costs more; its output is the
// longest allowed answer. It is zero if the turn has no budget.
func (c *call) most() holdfast.Usage {
	if !c.t.Bounded() {
		return holdfast.Usage{}
	}
	u := holdfast.Usage{InputTokens: (c.size + 3) / 4, OutputTokens: c.ask.most}
	cached := u
	cached.InputTokens, cached.CacheWriteTokens = 0, u.InputTokens
	cost := c.price(cached).CostMicroUSD
	u = c.price(u)
	u.CostMicroUSD = max(u.CostMicroUSD, cost)
	return u
}

// name returns the model's name in the price book, such as openai/NAME.
func (c *call) name() string {
	if c.provider == Scripted {
		return c.t.Session().Model
	}
	return c.provider + "/" + c.ask.model
}

func (c *call) price(u holdfast.Usage) holdfast.Usage { return c.b.cfg.Book.Price(c.name(), u) }

// forwarded are the headers of a box's request that are sent to the provider, if their value has at most 4096 bytes.
// All others, such as keys and cookies, are dropped.
var forwarded = []string{
	"Accept", "Anthropic-Beta", "Anthropic-Version", "User-Agent", "X-App", "X-Claude-Code-Session-Id", "X-Stainless-Arch",
	"X-Stainless-Lang", "X-Stainless-Os", "X-Stainless-Package-Version", "X-Stainless-Retry-Count", "X-Stainless-Runtime",
	"X-Stainless-Runtime-Version", "X-Stainless-Timeout",
}

// returned are the headers of a provider's answer that are passed to the box.
var returned = []string{"Content-Type", "Request-Id", "Retry-After", "Retry-After-Ms", "X-Request-Id", "X-Should-Retry"}

func (c *call) send(ctx context.Context) (*http.Response, error) {
	url := strings.TrimRight(c.up.URL, "/") + c.e.path
	if c.r.URL.RawQuery != "" {
		url += "?" + c.r.URL.RawQuery
	}
	req, err := http.NewRequestWithContext(ctx, c.e.method, url, bytes.NewReader(c.ask.body))
	if err != nil {
		return nil, err
	}
	for _, name := range forwarded {
		if v := c.r.Header.Get(name); v != "" && len(v) <= 4096 {
			req.Header.Set(name, v)
		}
	}
	if c.e.check != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept-Encoding", "identity")
	if c.up.Key != nil {
		if c.key, err = c.up.Key(); err != nil {
			return nil, err
		}
		c.hide = newHider(c.key)
	}
	switch {
	case c.key == "":
	case c.e.api == messagesAPI:
		req.Header.Set("X-Api-Key", c.key)
	default:
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	return c.up.Transport.RoundTrip(req)
}

// failed settles a call that got no usable answer because of err, and returns the error for the box. It also records
// the call, unless err is a *holdfast.Error: then the request was not sent.
func (c *call) failed(ctx context.Context, err error) error {
	var known *holdfast.Error
	if errors.As(err, &known) {
		c.settle(holdfast.Usage{}, false)
		return err
	}
	f := remote.Broken(ctx, err, "no answer")
	used := holdfast.Usage{}
	if ctx.Err() != nil && !c.e.free {
		// The request was canceled, but the provider may have read it.
		used = c.price(holdfast.Usage{InputTokens: (c.size + 3) / 4})
	}
	if rerr := c.record(ctx, used, remote.Hide(f, c.key), false); rerr != nil {
		return rerr
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "broker", "the model provider does not answer: %s", f.Message)
}

// refused passes an error answer of the provider to the box: its status, its listed headers and the first maxRefusal
// bytes of its body, with the server's key hidden. If the provider asks for a wait longer than longWait, a header
// tells the client in the box not to try again. An answer with a status below 400 is not passed on.
func (c *call) refused(resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	raw = c.hide.all(raw) // this must come before errorText shortens the text, which could cut a key
	f := remote.Hide(remote.Status(resp.StatusCode, resp.Header, errorKind(raw), errorText(raw), c.b.cfg.Now()), c.key)
	wait := time.Duration(f.RetryAfterSeconds * float64(time.Second))
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == 529 {
		c.b.limited(c.id, &runtime.Limit{
			Status: resp.StatusCode, Class: f.Class, Message: f.Message, At: c.b.cfg.Now(), RetryAfter: wait,
		})
	}
	if err := c.record(c.r.Context(), holdfast.Usage{}, f, false); err != nil {
		return err
	}
	c.headers(resp)
	if wait > longWait {
		c.w.Header().Set("X-Should-Retry", "false")
	}
	status := resp.StatusCode
	if status < 400 {
		// A redirect or another status below 400 is not passed on: the box must not follow it.
		return holdfast.Errorf(holdfast.KindUnavailable, "broker", "the model provider answered with the unexpected status %d", status).WithHint("%s", f.Hint)
	}
	patient(c.w, c.b.cfg.Now())
	c.w.WriteHeader(status)
	_, err := c.w.Write(raw)
	return aborted(err)
}

func (c *call) headers(resp *http.Response) {
	c.w.Header().Del("X-Should-Retry")
	for _, name := range returned {
		if v := resp.Header.Get(name); v != "" && !c.hide.in(v) {
			c.w.Header().Set(name, v)
		}
	}
}

// whole reads a complete answer without streaming, settles the call and passes the answer to the box.
func (c *call) whole(ctx context.Context, resp *http.Response) error {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(raw) > maxAnswer {
		err = fmt.Errorf("the model provider's answer is larger than %d bytes", maxAnswer)
	}
	if err != nil {
		return c.failed(ctx, err)
	}
	c.first = c.b.cfg.Now()
	c.meter.Whole(raw)
	raw = c.hide.all(raw)
	c.hear(raw)
	if err := c.end(ctx, nil); err != nil {
		return err
	}
	c.headers(resp)
	c.w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
	for p := range slices.Chunk(raw, piece) {
		patient(c.w, c.b.cfg.Now())
		if _, err := c.w.Write(p); err != nil {
			return http.ErrAbortHandler
		}
	}
	return nil
}

// patient gives the client in the box writeTimeout from now on to accept the next bytes of an answer.
func patient(w http.ResponseWriter, now time.Time) {
	_ = http.NewResponseController(w).SetWriteDeadline(now.Add(writeTimeout)) // an error means that w has no deadlines
}

// stream passes an answer to the box as it arrives, without the key. The usage is settled and
// recorded before the end of the answer is passed on.
func (c *call) stream(ctx context.Context, resp *http.Response) error {
	c.headers(resp)
	c.w.WriteHeader(http.StatusOK)
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if c.first.IsZero() {
				c.first = c.b.cfg.Now()
			}
			c.meter.Feed(buf[:n])
			out := c.hide.pass(buf[:n])
			c.hear(out)
			if c.meter.Ended() {
				if rerr := c.end(ctx, nil); rerr != nil {
					return http.ErrAbortHandler
				}
			}
			if c.tell(out) != nil {
				c.broke(ctx, "canceled", "the client in the box went away during the answer")
				return http.ErrAbortHandler
			}
		}
		if errors.Is(err, io.EOF) {
			c.meter.End()
		}
		switch {
		case errors.Is(err, io.EOF) && c.meter.Ended():
			if rerr := c.end(ctx, nil); rerr != nil {
				return http.ErrAbortHandler
			}
			return aborted(c.tell(c.hide.end()))
		case errors.Is(err, io.EOF):
			c.broke(ctx, "cut", "the stream of the model's answer ended early")
			return http.ErrAbortHandler
		case err != nil:
			f := remote.Broken(ctx, err, "the stream of the model's answer broke off")
			c.broke(ctx, f.Class, f.Message)
			return http.ErrAbortHandler
		}
	}
}

// tell sends the piece p of a streamed answer to the box at once.
func (c *call) tell(p []byte) error {
	patient(c.w, c.b.cfg.Now())
	if len(p) == 0 {
		return nil
	}
	if _, err := c.w.Write(p); err != nil {
		return err
	}
	return http.NewResponseController(c.w).Flush()
}

// broke settles and records a streamed answer that was cut off, with the usage so far. class and message
// describe the failure, unless the provider sent an error within the stream: then that is recorded.
func (c *call) broke(ctx context.Context, class, message string) {
	f := &model.Failure{Class: class, Message: message}
	if m := c.meter.Failure(); m != "" {
		f.Class, f.Message = "api", remote.Clean(string(c.hide.all([]byte(m))))
	}
	_ = c.end(ctx, remote.Hide(f, c.key)) // an error changes nothing: the answer has already ended
}

// end settles and records the usage of the call; f is the failure that cut the answer off, or nil.
func (c *call) end(ctx context.Context, f *model.Failure) error {
	if c.e.free {
		return nil
	}
	used := c.meter.Usage()
	if f == nil && used == (holdfast.Usage{}) || f != nil && f.Class == "canceled" && used.Prompt() == 0 {
		// The provider reported no usage: estimate it, so that neither such a provider nor a client
		// that leaves early makes a call free.
		used.InputTokens = (c.size + 3) / 4
	}
	if f != nil || used.OutputTokens == 0 {
		used.OutputTokens = max(used.OutputTokens, c.meter.Seen()/4)
	}
	return c.record(ctx, c.price(used), f, f == nil)
}

// record settles the budget reservation and records the call as an event of the turn. Only the first call of record
// does something. Calls of the scripted model are not recorded, nor are free calls that succeeded.
func (c *call) record(ctx context.Context, used holdfast.Usage, f *model.Failure, answered bool) error {
	if c.closed {
		return nil
	}
	c.closed = true
	c.settle(used, answered)
	if c.provider == Scripted || c.e.free && f == nil {
		return nil
	}
	ev := holdfast.ModelRequest{
		Provider: c.provider, Model: c.ask.model, Status: holdfast.StatusOK, Attempt: 1, RequestID: c.request,
		Messages: c.ask.messages, Bytes: c.size, Usage: used, Brokered: true,
		DurationMS: clock.Milliseconds(c.b.cfg.Now().Sub(c.began)),
	}
	if !c.first.IsZero() {
		ev.FirstMS = clock.Milliseconds(c.first.Sub(c.began))
	}
	if f != nil {
		ev.Status, ev.Message = f.Class, f.Message
	}
	if c.b.cfg.Content {
		ev.Sent, ev.Answer = c.legible(c.ask.body), c.legible(c.said)
	}
	// Record the call even if the client has disconnected, which cancels ctx.
	_, err := c.t.Record(context.WithoutCancel(ctx), journal.Draft{Type: holdfast.EventModelRequest, Data: ev})
	return err
}

// maxContent is the most bytes of a request or an answer that are recorded.
const maxContent = 256 << 10

func (c *call) hear(p []byte) {
	if c.b.cfg.Content {
		c.said = append(c.said, p[:min(len(p), max(0, maxContent-len(c.said)))]...)
	}
}

func (c *call) legible(raw []byte) string {
	return strings.ToValidUTF8(string(c.hide.all(raw[:min(len(raw), maxContent)])), "\uFFFD")
}

// aborted returns http.ErrAbortHandler, which breaks the connection to the box, if err is an error of writing
// to it; nil if err is nil.
func aborted(err error) error {
	if err != nil {
		return http.ErrAbortHandler
	}
	return nil
}
