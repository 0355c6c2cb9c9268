package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// DefaultURL is where a server listens that was told nothing else.
const DefaultURL = "http://127.0.0.1:4100"

// Config configures a Client. The zero value talks to DefaultURL without a token.
type Config struct {
	// URL is the server's base URL.
	URL string
	// Token is the bearer token.
	Token string
	// HTTP does the requests. It must have no Timeout: streams go on. Nil is a
	// client of its own, which keeps connections open.
	HTTP *http.Client
	// ReconnectFor is how long a broken stream, or a request with an idempotency
	// key, tries again before it fails with unavailable (1 min).
	ReconnectFor time.Duration
	// Silence is how long a stream may be without a sign of life, which the server
	// gives every 15 s, before it counts as broken (45 s).
	Silence time.Duration
	// Connection, when set, is told that a stream broke, with the reason, and with
	// nil that it goes on. The goroutine that reads the stream calls it.
	Connection func(err error)
}

// Client calls one server. Safe for concurrent use. Its methods return
// *holdfast.Error: what the server said, or unavailable when it did not answer.
type Client struct {
	cfg  Config
	base string
	http *http.Client
}

// masked is a URL, or what was meant for one, without the parts that hold secrets.
func masked(raw string) string {
	if before, _, ok := strings.Cut(raw, "?"); ok {
		raw = before + "?…"
	}
	if at := strings.LastIndexByte(raw, '@'); at >= 0 {
		scheme, _, ok := strings.Cut(raw[:at], "://")
		if ok {
			scheme += "://"
		} else {
			scheme = ""
		}
		raw = scheme + "…" + raw[at:]
	}
	return raw
}

// New makes a client; invalid when the URL is not one.
func New(cfg Config) (*Client, error) {
	if cfg.URL == "" {
		cfg.URL = DefaultURL
	}
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil || !validPort(u.Port()) {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "client", "%s is not a server's URL", holdfast.Quote(masked(cfg.URL))).
			WithHint("use http://host:port, as in HOLDFAST_URL=%s", DefaultURL)
	}
	if cfg.ReconnectFor <= 0 {
		cfg.ReconnectFor = time.Minute
	}
	if cfg.Silence <= 0 {
		cfg.Silence = 45 * time.Second
	}
	c := &Client{cfg: cfg, base: strings.TrimRight(cfg.URL, "/"), http: cfg.HTTP}
	if c.http == nil {
		c.http = &http.Client{Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			MaxIdleConnsPerHost: 128,
			IdleConnTimeout:     90 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second,
			DisableCompression:  true,
		}}
	}
	return c, nil
}

func validPort(port string) bool {
	_, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call is one request.
type call struct {
	method, path string
	query        url.Values
	// body is sent as JSON, or as it is when it is a reader.
	body any
	key  string
	head map[string]string
}

// do sends a request and decodes the answer into out, unless that is nil.
func (c *Client) do(ctx context.Context, r call, out any) error {
	resp, err := c.open(ctx, r)
	if err != nil {
		return err
	}
	defer drop(resp.Body)
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return broken(ctx, r, err)
	}
	return nil
}

// drop lets the connection be used again.
func drop(body io.ReadCloser) {
	// Whatever is left is small; if not, closing is cheaper.
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	_ = body.Close()
}

// open sends a request and returns an answer that is a success. A request with
// a key is sent again while the server cannot be reached: the key makes that
// safe. A server that was not there to begin with is not waited for.
func (c *Client) open(ctx context.Context, r call) (*http.Response, error) {
	var payload []byte
	if _, stream := r.body.(io.Reader); r.body != nil && !stream {
		var err error
		if payload, err = json.Marshal(r.body); err != nil {
			return nil, holdfast.Errorf(holdfast.KindInternal, "client", "the request does not encode: %w", err)
		}
	}
	resp, err := c.once(ctx, r, payload)
	if r.key == "" || !lost(err) || refused(err) {
		return resp, err
	}
	wait := newBackoff(c.cfg.ReconnectFor)
	for lost(err) && wait.next(ctx) {
		resp, err = c.once(ctx, r, payload)
	}
	return resp, err
}

func (c *Client) once(ctx context.Context, r call, payload []byte) (*http.Response, error) {
	target := c.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	body, _ := r.body.(io.Reader)
	if payload != nil {
		body = bytes.NewReader(payload)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "client", "%s %s is no request: %w", r.method, holdfast.Quote(r.path), err)
	}
	c.authorize(req.Header)
	if payload != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	for k, v := range r.head {
		req.Header.Set(k, v)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(ctx, c.base, err)
	}
	if resp.StatusCode >= 400 {
		defer drop(resp.Body)
		return nil, problemOf(resp)
	}
	return resp, nil
}

func (c *Client) authorize(h http.Header) {
	if c.cfg.Token != "" {
		h.Set("Authorization", "Bearer "+c.cfg.Token)
	}
}

// problemOf turns a refusal back into the error that the server had.
func problemOf(resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if typ, _, terr := mime.ParseMediaType(resp.Header.Get("Content-Type")); err == nil && terr == nil && typ == "application/problem+json" {
		var p holdfast.Problem
		if json.Unmarshal(data, &p) == nil && p.Kind != "" {
			return fromProblem(p)
		}
	}
	if resp.StatusCode == http.StatusRequestHeaderFieldsTooLarge {
		return holdfast.Errorf(holdfast.KindTooLarge, "client", "the head of the request is too large for the server").
			WithHint("shorten the path, the key or the token")
	}
	kind := holdfast.KindInternal
	for _, k := range holdfast.Kinds() {
		if k.HTTPStatus() == resp.StatusCode {
			kind = k
		}
	}
	if resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusGatewayTimeout {
		kind = holdfast.KindUnavailable
	}
	return holdfast.Errorf(kind, "client", "the server answered %s without a problem document", resp.Status).
		WithHint("check that HOLDFAST_URL names a holdfast server")
}

func fromProblem(p holdfast.Problem) *holdfast.Error {
	return &holdfast.Error{Kind: p.Kind, Msg: p.Detail, Hint: p.Hint}
}

// errLost marks what broke on the way: the server may or may not have acted.
var errLost = errors.New("connection lost")

func lost(err error) bool { return errors.Is(err, errLost) }

// refused reports whether no connection came about at all.
func refused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func unreachable(ctx context.Context, base string, err error) error {
	var uerr *url.Error
	if errors.As(err, &uerr) {
		err = uerr.Err // the URL is said once
	}
	if ctx.Err() != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "client", "the request was given up: %w", context.Cause(ctx))
	}
	e := holdfast.Errorf(holdfast.KindUnavailable, "client", "%s does not answer: %v", base, err)
	e.Err = errors.Join(errLost, err)
	return e.WithHint("start it with: holdfast serve")
}

// broken is an answer that ended early.
func broken(ctx context.Context, r call, err error) error {
	if ctx.Err() != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "client", "the request was given up: %w", context.Cause(ctx))
	}
	e := holdfast.Errorf(holdfast.KindUnavailable, "client", "the answer to %s %s ended early: %v", r.method, r.path, err)
	e.Err = errors.Join(errLost, err)
	return e
}

// backoff paces attempts: 50 ms, doubling to 2 s, until the limit has passed.
type backoff struct {
	limit time.Duration
	until time.Time
	pause time.Duration
}

func newBackoff(limit time.Duration) *backoff { return &backoff{limit: limit} }

// next waits before another attempt, or says that it is over.
func (b *backoff) next(ctx context.Context) bool {
	now := time.Now()
	if b.until.IsZero() {
		b.until, b.pause = now.Add(b.limit), 50*time.Millisecond
	}
	if !now.Before(b.until) {
		return false
	}
	t := time.NewTimer(b.pause)
	defer t.Stop()
	b.pause = min(2*b.pause, 2*time.Second)
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// reset starts over after a success.
func (b *backoff) reset() { b.until = time.Time{} }

func sessionPath(id holdfast.SessionID, rest string) string {
	return "/v1/sessions/" + url.PathEscape(string(id)) + rest
}
