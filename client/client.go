package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/internal/shellword"
)

// DefaultURL is the URL at which a server listens by default.
const DefaultURL = "http://127.0.0.1:4100"

// Config configures a Client. The zero value talks to DefaultURL without a token.
type Config struct {
	// URL is the server's base URL.
	URL string
	// Address, if set, returns the server's URL. It is called before each request, because the
	// server may listen at another address after a restart. If it returns an empty or invalid
	// URL, the last one is used.
	Address func() string
	// Token is the bearer token: an API key or the owner token.
	Token string
	// HTTP is the HTTP client that makes the requests. It must have no Timeout, because streams have
	// no end. Nil means a new HTTP client that keeps connections open.
	HTTP *http.Client
	// ReconnectFor is how long a broken stream, or a request with an idempotency key, is retried
	// before it fails with unavailable (default 1 min). A request with a key that was refused
	// because the server can run no more boxes is retried too, after the answer's Retry-After.
	ReconnectFor time.Duration
	// FirstByte is how long the server may take to begin an answer after it has received the
	// request (default 30 s). Answers that wait for boxes or files may take four times as long, and
	// a command its own timeout in addition. Copies, backups and the checks of the snapshot store
	// have limits of their own.
	FirstByte time.Duration
	// Silence is how long an answer may pause once it has begun (default 45 s). Streams send a
	// sign of life every 15 s.
	Silence time.Duration
	// Waiting, if set, is called while a request or a stream waits for the server: when the
	// connection breaks, the server is full or an answer is late, then at growing intervals. If the
	// connection had broken, it is called once more when the server answers again. Several goroutines
	// may call it at the same time for different requests, but only one at a time for the same
	// request. It must return soon.
	Waiting func(Wait)
}

// Client calls one server. Safe for concurrent use. The errors of its methods are *holdfast.Error: the
// server's own error, unavailable if the server did not answer, or an error about the request or the answer.
type Client struct {
	cfg  Config
	http *http.Client

	mu   sync.Mutex
	base string
}

// masked returns a URL, which may be malformed, without the parts that may hold secrets: the
// user and the query.
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

// New returns a client. It fails with invalid if Config.URL is not an http or https URL, or has a user or a query.
func New(cfg Config) (*Client, error) {
	if cfg.URL == "" {
		cfg.URL = DefaultURL
	}
	if !validURL(cfg.URL) {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "client", "%s is not an http or https URL of a server", holdfast.Quote(masked(cfg.URL))).
			WithHint("use http://host:port, as in HOLDFAST_URL=%s", DefaultURL)
	}
	if cfg.ReconnectFor <= 0 {
		cfg.ReconnectFor = time.Minute
	}
	if cfg.Silence <= 0 {
		cfg.Silence = 45 * time.Second
	}
	if cfg.FirstByte <= 0 {
		cfg.FirstByte = 30 * time.Second
	}
	c := &Client{cfg: cfg, base: strings.TrimRight(cfg.URL, "/"), http: cfg.HTTP}
	if c.http == nil {
		c.http = &http.Client{Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: connectFor, KeepAlive: 30 * time.Second}).DialContext,
			MaxIdleConnsPerHost: 128,
			IdleConnTimeout:     90 * time.Second,
			TLSHandshakeTimeout: connectFor,
			DisableCompression:  true,
		}}
	}
	return c, nil
}

func validURL(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.RawQuery == "" && u.User == nil && validPort(u.Port())
}

// where returns the server's URL as it was used last.
func (c *Client) where() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.base
}

// find returns the URL for the next request: that of Config.Address if it is set and returns a valid
// one, else the last one that was used.
func (c *Client) find() string {
	if c.cfg.Address != nil {
		if now := strings.TrimRight(c.cfg.Address(), "/"); validURL(now) {
			c.mu.Lock()
			c.base = now
			c.mu.Unlock()
		}
	}
	return c.where()
}

func validPort(port string) bool {
	_, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call describes one HTTP request.
type call struct {
	method, path string
	query        url.Values
	// body is sent as it is if it is an io.Reader, otherwise as JSON.
	body any
	key  string
	head map[string]string
	// within is how long the answer may take to begin; 0 means Config.FirstByte.
	within time.Duration
	// slow is true if the server waits for boxes or files before it answers.
	slow bool
}

// limit returns how long the server may take to begin the answer.
func (c *Client) limit(r call) time.Duration {
	switch {
	case r.within > 0:
		return r.within
	case r.slow:
		return slowFor * c.cfg.FirstByte
	}
	return c.cfg.FirstByte
}

// do sends a request and decodes the answer into out, unless out is nil. A request with an idempotency
// key is repeated as open does, also if the answer ends early.
func (c *Client) do(ctx context.Context, r call, out any) error {
	return c.repeat(ctx, r, func(resp *http.Response) error {
		defer drop(resp.Body)
		if out == nil {
			return nil
		}
		err := json.NewDecoder(resp.Body).Decode(out)
		var syntax *json.SyntaxError
		var typ *json.UnmarshalTypeError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &syntax) || errors.As(err, &typ):
			return foreign(holdfast.KindInternal, "the server's answer to %s %s cannot be read: %v", r.method, r.path, err)
		}
		return broken(ctx, r, err)
	})
}

// drop reads the rest of a body and closes it, so that the connection can be reused.
func drop(body io.ReadCloser) {
	// The rest of a body is usually small. If it is larger than 64 KiB, closing the connection is cheaper than reading it.
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	_ = body.Close()
}

// open sends a request and returns the answer if it is a success. A request with an idempotency
// key is repeated while the server does not answer or can run no more boxes; the key makes that
// safe. It is not repeated if the first attempt could not connect at all.
func (c *Client) open(ctx context.Context, r call) (resp *http.Response, err error) {
	err = c.repeat(ctx, r, func(got *http.Response) error {
		resp = got
		return nil
	})
	return resp, err
}

// file does what open does, for an answer that is a file or an archive. If the answer breaks off, Read of its body
// returns a *holdfast.Error.
func (c *Client) file(ctx context.Context, r call) (*http.Response, error) {
	resp, err := c.open(ctx, r)
	if err == nil {
		resp.Body = &opened{resp.Body, ctx, r}
	}
	return resp, err
}

// content does what file does, but returns only the answer's body. The caller has to close the body.
func (c *Client) content(ctx context.Context, r call) (io.ReadCloser, error) {
	resp, err := c.file(ctx, r)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// repeat sends a request, repeats it as open does, and calls read with each answer. An error of read is treated
// like an error of the request.
func (c *Client) repeat(ctx context.Context, r call, read func(*http.Response) error) error {
	var payload []byte
	if _, stream := r.body.(io.Reader); r.body != nil && !stream {
		var err error
		if payload, err = json.Marshal(r.body); err != nil {
			return holdfast.Errorf(holdfast.KindInternal, "client", "the request's body cannot be encoded as JSON: %w", err)
		}
	}
	w := c.newWait()
	w.begin(nil)
	sent := false
	attempt := func() error {
		resp, err := c.once(ctx, r, payload, w)
		if err == nil {
			err = read(resp)
		}
		sent = sent || MayHaveArrived(err)
		return err
	}
	err := attempt()
	if r.key != "" && (sent || errors.Is(err, holdfast.ErrFull)) {
		pace := newBackoff(c.cfg.ReconnectFor)
		for temporary(err) {
			w.begin(err)
			if !pace.nextAfter(ctx, RetryAfter(err)) {
				break
			}
			err = attempt()
		}
		if e := (*holdfast.Error)(nil); sent && lost(err) && errors.As(err, &e) {
			e.Err = errors.Join(errSent, e.Err)
		}
		if stranger(err) {
			err = c.strange(err)
		}
	}
	w.end(!lost(err))
	return err
}

func (c *Client) once(ctx context.Context, r call, payload []byte, w *wait) (*http.Response, error) {
	base, limit := c.find(), c.limit(r)
	target := base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	waiting, p := patient(ctx, limit)
	body, _ := r.body.(io.Reader)
	if payload != nil {
		body = bytes.NewReader(payload)
	}
	req, err := http.NewRequestWithContext(waiting, r.method, target, body)
	if err != nil {
		p.end()
		return nil, holdfast.Errorf(holdfast.KindInvalid, "client", "the request %s %s is invalid: %w", r.method, holdfast.Quote(r.path), err)
	}
	if payload == nil && req.Body != nil && req.Body != http.NoBody {
		req.Body = &upload{req.Body, p, w, limit}
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
		err = because(waiting, err)
		p.end()
		return nil, c.unreachable(ctx, base, err, p.connected.Load())
	}
	p.rest()
	resp.Body = &download{ReadCloser: resp.Body, ctx: waiting, p: p, limit: c.cfg.Silence}
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

// problemOf returns the server's error from an answer that is not a success.
func problemOf(resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if typ, _, terr := mime.ParseMediaType(resp.Header.Get("Content-Type")); err == nil && terr == nil && typ == "application/problem+json" {
		var p holdfast.Problem
		if json.Unmarshal(data, &p) == nil && p.Kind != "" {
			e := fromProblem(p)
			if p.Full() {
				e.Err = fullUntil(resp.Header)
			}
			return e
		}
	}
	if resp.StatusCode == http.StatusRequestHeaderFieldsTooLarge {
		return holdfast.Errorf(holdfast.KindTooLarge, "client", "the headers and path of the request are too large for the server").
			WithHint("shorten the path, the key or the token")
	}
	kind := holdfast.KindInternal
	for _, k := range holdfast.Words[holdfast.Kind]() {
		if k.HTTPStatus() == resp.StatusCode {
			kind = k
		}
	}
	if resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusGatewayTimeout {
		kind = holdfast.KindUnavailable
	}
	return foreign(kind, "the server answered %s without a problem document", resp.Status)
}

// foreign returns the error for an answer that does not have the form of a Holdfast server's answers.
func foreign(kind holdfast.Kind, format string, args ...any) error {
	e := holdfast.Errorf(kind, "client", format, args...).WithHint("check that HOLDFAST_URL names a holdfast server")
	e.Err = errForeign
	return e
}

func fromProblem(p holdfast.Problem) *holdfast.Error {
	return &holdfast.Error{Kind: p.Kind, Msg: p.Detail, Hint: p.Hint}
}

var (
	// errLost marks errors of the connection, and of the attempt to make one.
	errLost = errors.New("connection to the server lost")
	// errSent marks errors of broken or missing answers to requests that the server may have read. It is not set if
	// no connection to the server could be made.
	errSent = errors.New("the server may have read the request")
)

func lost(err error) bool { return errors.Is(err, errLost) }

// refused reports whether an error says that no connection could be made.
func refused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// unreachable returns the error of a request that got no answer. connected is true if there was a connection.
func (c *Client) unreachable(ctx context.Context, base string, err error, connected bool) error {
	var uerr *url.Error
	if errors.As(err, &uerr) {
		err = uerr.Err // the error that unreachable returns names the URL already
	}
	if ctx.Err() != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "client", "the request to the server was canceled: %w", context.Cause(ctx))
	}
	e := holdfast.Errorf(holdfast.KindUnavailable, "client", "the server at %s does not answer: %v", base, err)
	e.Err = errors.Join(errLost, err)
	if connected || !refused(err) {
		e.Err = errors.Join(errSent, e.Err)
	}
	if s := (*silent)(nil); errors.As(err, &s) {
		return e.WithHint("a program accepts connections at the server's address but does not answer: examine it with holdfast doctor; kill and restart a server that hangs")
	}
	return e.WithHint("%s", c.whyNot(base, err))
}

// whyNot returns a hint on what to do about a server that cannot be reached.
func (c *Client) whyNot(base string, err error) string {
	u, perr := url.Parse(base)
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	switch {
	case perr != nil:
	case errors.Is(err, http.ErrSchemeMismatch):
		return "the server speaks HTTP without TLS: use http://" + u.Host
	case errors.As(err, &cert):
		return "this machine does not trust the server's certificate: use the host name in it, or set SSL_CERT_FILE to its authority"
	case errors.As(err, &dns):
		return "check the name " + holdfast.Quote(u.Hostname()) + " in --url or HOLDFAST_URL"
	case !local(u.Hostname()):
		return "check that a server runs on that machine and listens there"
	case c.cfg.Address != nil || base == DefaultURL:
	case u.Scheme == "http" && u.Path == "":
		at := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80"))
		return "start it with: holdfast serve --listen " + shellword.Quote(at) + "; or check the address in --url, HOLDFAST_URL or the context"
	default:
		return "check that a server runs on this machine, and the address in --url, HOLDFAST_URL or the context"
	}
	return "start it with: holdfast serve"
}

// Local reports whether the server's URL names localhost or a loopback address.
func (c *Client) Local() bool {
	u, err := url.Parse(c.where())
	return err == nil && local(u.Hostname())
}

// local reports whether a host is localhost or a loopback address.
func local(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// broken returns the error of an answer that ended before it was complete.
func broken(ctx context.Context, r call, err error) error {
	if ctx.Err() != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "client", "the request to the server was canceled: %w", context.Cause(ctx))
	}
	e := holdfast.Errorf(holdfast.KindUnavailable, "client", "the server's answer to %s %s ended early: %v", r.method, r.path, err)
	e.Err = errors.Join(errLost, errSent, err)
	return e
}

// backoff paces repeated attempts: with pauses of 50 ms, doubling to 2 s, until the limit has
// passed.
type backoff struct {
	limit time.Duration
	until time.Time
	pause time.Duration
}

func newBackoff(limit time.Duration) *backoff { return &backoff{limit: limit} }

// next waits before another attempt. It returns false if no further attempt is to be made, because
// the limit has passed or ctx ended.
func (b *backoff) next(ctx context.Context) bool { return b.nextAfter(ctx, 0) }

// nextAfter waits as next does, but at least for the duration least. It returns false at once if that
// wait would not end before the limit.
func (b *backoff) nextAfter(ctx context.Context, least time.Duration) bool {
	now := time.Now()
	if b.until.IsZero() {
		b.until = now.Add(b.limit)
	}
	if b.pause == 0 {
		b.pause = 50 * time.Millisecond
	}
	if !now.Add(least).Before(b.until) {
		return false
	}
	wait := max(b.pause, least)
	b.pause = min(2*b.pause, 2*time.Second)
	return clock.Pause(ctx, wait) == nil
}

// connected ends an outage, so that the next outage may last for the whole limit again. It does
// not shorten the pause, because a server may accept connections and die repeatedly.
func (b *backoff) connected() { b.until = time.Time{} }

// progressed resets limit and pause after the server has delivered something.
func (b *backoff) progressed() { b.until, b.pause = time.Time{}, 0 }

func sessionPath(id holdfast.SessionID, rest string) string {
	return "/v1/sessions/" + url.PathEscape(string(id)) + rest
}
