package hook

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/holdfast-run/holdfast"
)

// NewClient returns the HTTP client for hooks with a URL. It follows no redirects, uses no proxy
// and closes connections that were idle for 30 seconds.
func NewClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// post sends the input to the hook's URL and parses the answer. A status other than 2xx is a
// failure of the hook.
func (h *Hook) post(ctx context.Context, in Input, client *http.Client, ran *holdfast.HookRan) Output {
	limited, cancel := context.WithTimeout(ctx, h.def.Timeout)
	defer cancel()
	body, status, err := h.exchange(limited, in, client)
	switch {
	case err != nil && ctx.Err() == nil && limited.Err() != nil:
		return failed(ran, OutcomeTimeout, "the hook's URL gave no answer within %s", h.def.Timeout)
	case err != nil:
		// Use the innermost error: the outer one shows the whole URL, which may hold a secret.
		for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
			err = inner
		}
		return failed(ran, OutcomeFailed, "the hook's URL gave no answer: %s", err)
	case status < 200 || status > 299:
		return failed(ran, OutcomeFailed, "the hook's URL answered with status %d: %s", status, clean(string(body), maxReason))
	case len(body) > MaxOutput:
		return failed(ran, OutcomeFailed, "the hook's URL answered with more than %d bytes", MaxOutput)
	}
	return h.read(body, ran)
}

func (h *Hook) exchange(ctx context.Context, in Input, client *http.Client) ([]byte, int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.def.URL, bytes.NewReader(in.json()))
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "holdfast-hook")
	if h.def.Secret != "" {
		req.Header.Set("Authorization", "Bearer "+h.def.Secret)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, MaxOutput+1))
	return body, res.StatusCode, err
}
