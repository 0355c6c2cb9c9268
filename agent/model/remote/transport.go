package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/holdfast-run/holdfast"
)

// DefaultSilence is the default time for which a provider may send nothing during a request.
const DefaultSilence = 90 * time.Second

// ErrStalled is the error of a request during which the provider sent nothing for too long.
var ErrStalled = errors.New("nothing came from the provider for too long")

// Transport is an http.RoundTripper that cancels a request if the server sends nothing for
// Silence: no status, or no byte of the body. Safe for concurrent use.
type Transport struct {
	Base    http.RoundTripper
	Silence time.Duration
}

// NewClient returns an HTTP client with its own connections and a Transport; silence 0 means
// DefaultSilence. It follows no redirects, because the API key is for one host only.
func NewClient(silence time.Duration) *http.Client {
	base := &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		// There is no timeout for whole requests, because streams may be long; see Transport.
		TLSHandshakeTimeout: 15 * time.Second, ForceAttemptHTTP2: true,
		MaxIdleConns: 64, MaxIdleConnsPerHost: 32, IdleConnTimeout: 90 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
	}
	if silence <= 0 {
		silence = DefaultSilence
	}
	return &http.Client{
		Transport:     &Transport{Base: base, Silence: silence},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(t.Silence, func() { cancel(ErrStalled) })
	resp, err := t.Base.RoundTrip(req.WithContext(ctx))
	if err != nil {
		timer.Stop()
		cancel(nil)
		return nil, stalled(ctx, err)
	}
	timer.Reset(t.Silence)
	resp.Body = &body{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, timer: timer, silence: t.Silence}
	return resp, nil
}

// body is an answer's body. Each read that returns bytes restarts the timer for silence.
type body struct {
	io.ReadCloser
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	silence time.Duration
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.timer.Reset(b.silence)
	}
	if err != nil && err != io.EOF {
		err = stalled(b.ctx, err)
	}
	return n, err
}

func (b *body) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}

func stalled(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), ErrStalled) {
		return ErrStalled
	}
	return err
}

// CheckURL returns an error, which mentions name, if raw is not valid as a provider's base URL.
func CheckURL(name, raw string) error {
	u, err := url.Parse(raw)
	if err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "" {
		return nil
	}
	return holdfast.Errorf(holdfast.KindInvalid, "model", "setting %s: %s is not a valid base URL of a model provider", name, holdfast.Quote(raw)).
		WithHint("write a URL with http:// or https://, a host and perhaps a path, but no user, query or fragment")
}
