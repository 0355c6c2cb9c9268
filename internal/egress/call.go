package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/remote"
	"github.com/holdfast-run/holdfast/internal/egress/meter"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

const (
	// writeTimeout is how long a client may take no byte.
	writeTimeout = 60 * time.Second
	// maxAnswer bounds an answer that does not stream, maxRefusal one that is an error.
	maxAnswer  = 64 << 20
	maxRefusal = 64 << 10
	// longWait is the longest wait that a client is left to do by itself.
	longWait = time.Minute
)

// call is one request on its way.
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
	// said is what was answered, where it is recorded.
	said []byte
}

// run reserves, sends and answers. Each way out settles.
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
	c.request = remote.Clean(string(c.hide.all([]byte(first(resp.Header, "Request-Id", "X-Request-Id")))))
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		// Neither the meter nor the search for the key can read compressed bytes.
		return c.failed(ctx, fmt.Errorf("the answer is encoded as %s, which was not asked for", holdfast.Quote(enc)))
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

// most is what the call can cost at the most: a token for four bytes, and the longest
// answer, at the dearer of the prices of input and of cache writes.
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

// name is the model as the price book knows it.
func (c *call) name() string {
	if c.provider == Scripted {
		return c.t.Session().Model
	}
	return c.provider + "/" + c.ask.model
}

func (c *call) price(u holdfast.Usage) holdfast.Usage { return c.b.cfg.Book.Price(c.name(), u) }

// forwarded are the headers of a box's request that are sent on. The key, cookies and
// whatever else a box thinks of is not among them.
var forwarded = []string{
	"Accept", "Anthropic-Beta", "Anthropic-Version", "User-Agent", "X-App", "X-Claude-Code-Session-Id", "X-Stainless-Arch",
	"X-Stainless-Lang", "X-Stainless-Os", "X-Stainless-Package-Version", "X-Stainless-Retry-Count", "X-Stainless-Runtime",
	"X-Stainless-Runtime-Version", "X-Stainless-Timeout",
}

// returned are the headers of an answer that a box may see.
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

// failed is a request that has no answer.
func (c *call) failed(ctx context.Context, err error) error {
	var known *holdfast.Error
	if errors.As(err, &known) {
		c.settle(holdfast.Usage{}, false)
		return err
	}
	f := remote.Broken(ctx, err, "no answer")
	used := holdfast.Usage{}
	if ctx.Err() != nil && !c.e.free {
		// It may have been read before it was given up.
		used = c.price(holdfast.Usage{InputTokens: (c.size + 3) / 4})
	}
	if rerr := c.record(ctx, used, remote.Hide(f, c.key), false); rerr != nil {
		return rerr
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "broker", "the provider does not answer: %s", f.Message)
}

// refused is an answer that is an error. It goes to the box as it is, without the key
// should it stand there; a limit that takes longer than a client should wait by itself
// is told not to be tried again.
func (c *call) refused(resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	raw = c.hide.all(raw) // before the text is shortened to a message
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
		// A redirect is the operator's to follow, not the box's.
		return holdfast.Errorf(holdfast.KindUnavailable, "broker", "the provider answers with status %d", status).WithHint("%s", f.Hint)
	}
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

// whole answers without a stream.
func (c *call) whole(ctx context.Context, resp *http.Response) error {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(raw) > maxAnswer {
		err = errors.New("the answer is too large")
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
	_, err = c.w.Write(raw)
	return aborted(err)
}

// stream passes an answer on as it arrives, without the key. Its usage is settled and
// recorded before the box sees its end.
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
				c.broke(ctx, "canceled", "the client went away")
				return http.ErrAbortHandler
			}
		}
		switch {
		case errors.Is(err, io.EOF) && c.meter.Ended():
			return aborted(c.tell(c.hide.end()))
		case errors.Is(err, io.EOF):
			c.broke(ctx, "cut", "the stream ended early")
			return http.ErrAbortHandler
		case err != nil:
			f := remote.Broken(ctx, err, "the stream broke off")
			c.broke(ctx, f.Class, f.Message)
			return http.ErrAbortHandler
		}
	}
}

// tell sends a piece of a stream to the box at once.
func (c *call) tell(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	rc := http.NewResponseController(c.w)
	_ = rc.SetWriteDeadline(c.b.cfg.Now().Add(writeTimeout))
	if _, err := c.w.Write(p); err != nil {
		return err
	}
	return rc.Flush()
}

// broke settles an answer that has no end, with what it came to.
func (c *call) broke(ctx context.Context, class, message string) {
	f := &model.Failure{Class: class, Message: message}
	if m := c.meter.Failure(); m != "" {
		f.Class, f.Message = "api", remote.Clean(string(c.hide.all([]byte(m))))
	}
	_ = c.end(ctx, remote.Hide(f, c.key)) // the answer is over either way
}

// end settles what the answer used up; f is why it broke off.
func (c *call) end(ctx context.Context, f *model.Failure) error {
	if c.e.free {
		return nil
	}
	used := c.meter.Usage()
	if f == nil && used == (holdfast.Usage{}) || f != nil && f.Class == "canceled" && used.Prompt() == 0 {
		// Nobody said; a provider that says nothing and a client that leaves before
		// it was said must not be free.
		used.InputTokens = (c.size + 3) / 4
	}
	if f != nil || used.OutputTokens == 0 {
		used.OutputTokens = max(used.OutputTokens, c.meter.Seen()/4)
	}
	return c.record(ctx, c.price(used), f, f == nil)
}

// record settles the call and writes it down, once. The scripted model is no provider:
// its answers are counted where the agent's messages are.
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
		DurationMS: milliseconds(c.b.cfg.Now().Sub(c.began)),
	}
	if !c.first.IsZero() {
		ev.FirstMS = milliseconds(c.first.Sub(c.began))
	}
	if f != nil {
		ev.Status, ev.Message = f.Class, f.Message
	}
	if c.b.cfg.Content {
		ev.Sent, ev.Answer = c.legible(c.ask.body), c.legible(c.said)
	}
	// It is recorded also when the client has left.
	_, err := c.t.Record(context.WithoutCancel(ctx), journal.Draft{Type: holdfast.EventModelRequest, Data: ev})
	return err
}

// maxContent is where recorded content is cut.
const maxContent = 256 << 10

func (c *call) hear(p []byte) {
	if c.b.cfg.Content {
		c.said = append(c.said, p[:min(len(p), max(0, maxContent-len(c.said)))]...)
	}
}

func (c *call) legible(raw []byte) string {
	return strings.ToValidUTF8(string(c.hide.all(raw[:min(len(raw), maxContent)])), "\uFFFD")
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func first(h http.Header, names ...string) string {
	for _, n := range names {
		if v := h.Get(n); v != "" {
			return v
		}
	}
	return ""
}

// aborted is what a failed write to the box comes to.
func aborted(err error) error {
	if err != nil {
		return http.ErrAbortHandler
	}
	return nil
}
