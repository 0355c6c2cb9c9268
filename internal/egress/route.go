package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model/remote"
	"github.com/holdfast-run/holdfast/internal/egress/meter"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// api is one of the wire formats that boxes speak.
type api struct {
	name string
	// refuse writes an error as the API does.
	refuse func(w http.ResponseWriter, status int, kind, message string)
	// meter makes a meter for an answer.
	meter func() meter.Meter
}

// endpoint is a path of an API: what may be sent there.
type endpoint struct {
	api    *api
	method string
	// path follows the provider's base address.
	path string
	// check says what a body asks for, or refuses it; nil is a path without a body.
	check func(raw []byte, g grants) (ask, error)
	// free: asking costs nothing.
	free bool
}

var (
	messagesAPI = &api{name: Anthropic, refuse: refuseMessages, meter: meter.Messages}
	chatAPI     = &api{name: OpenAI, refuse: refuseChat, meter: meter.Chat}
)

// endpoints are all there are, by their path in a box.
var endpoints = map[string]endpoint{
	"/v1/messages":              {messagesAPI, http.MethodPost, "/v1/messages", checkMessages, false},
	"/v1/messages/count_tokens": {messagesAPI, http.MethodPost, "/v1/messages/count_tokens", checkMessages, true},
	"/v1/chat/completions":      {chatAPI, http.MethodPost, "/chat/completions", checkChat, false},
	"/v1/models":                {chatAPI, http.MethodGet, "/models", nil, true},
}

// ask is what a request wants, as far as the broker has to know.
type ask struct {
	model  string
	stream bool
	// most is the longest answer in tokens.
	most     int64
	messages int
	// body is what is sent on: the request as it came, unless it lacked what the
	// meter needs.
	body []byte
}

func (b *Broker) route(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead && r.URL.Path == "/" {
		return // clients warm their connection up
	}
	e, ok := endpoints[r.URL.Path]
	at := e.api
	if !ok {
		at = messagesAPI
		if strings.HasPrefix(r.URL.Path, "/v1/chat/") {
			at = chatAPI
		}
	}
	w.Header().Set("X-Should-Retry", "false")
	err := b.handle(w, r, e, ok)
	if err == nil {
		return
	}
	if r.Context().Err() != nil || errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler) // nobody is there, or half of an answer is
	}
	b.denied(r, at, err)
	status, kind := statusOf(err)
	message := "holdfast: " + messageOf(err)
	if hint := holdfast.HintOf(err); hint != "" {
		message += " (hint: " + hint + ")"
	}
	at.refuse(w, status, kind, message)
}

// denied records what was refused for what it is, and not for want of something.
func (b *Broker) denied(r *http.Request, at *api, err error) {
	switch holdfast.KindOf(err) {
	case holdfast.KindInvalid, holdfast.KindDenied, holdfast.KindNotFound, holdfast.KindTooLarge:
	default:
		return
	}
	if b.ledger != nil {
		b.ledger.add(sessionOf(r.Context()), holdfast.EventEgressDenied, holdfast.EgressDecision{
			Via: "model", Method: r.Method, Host: at.name, Path: remote.Clean(r.URL.Path), Reason: remote.Clean(messageOf(err)),
		})
	}
}

// messageOf leaves the operation out: it means nothing to who reads it in a box.
func messageOf(err error) string {
	var e *holdfast.Error
	if errors.As(err, &e) && e.Msg != "" {
		return e.Msg
	}
	return err.Error()
}

// statusOf is how both APIs name an error.
func statusOf(err error) (status int, kind string) {
	switch holdfast.KindOf(err) {
	case holdfast.KindInvalid:
		return http.StatusBadRequest, "invalid_request_error"
	case holdfast.KindNotFound:
		return http.StatusNotFound, "not_found_error"
	case holdfast.KindDenied:
		return http.StatusForbidden, "permission_error"
	case holdfast.KindTooLarge:
		return http.StatusRequestEntityTooLarge, "request_too_large"
	case holdfast.KindBusy:
		return http.StatusTooManyRequests, "rate_limit_error"
	case holdfast.KindUnavailable:
		return http.StatusServiceUnavailable, "overloaded_error"
	}
	return http.StatusInternalServerError, "api_error"
}

// handle answers one request, or says why not. After the first byte of an answer
// the error is http.ErrAbortHandler.
func (b *Broker) handle(w http.ResponseWriter, r *http.Request, e endpoint, ok bool) error {
	id := sessionOf(r.Context())
	switch {
	case !ok || r.URL.EscapedPath() != r.URL.Path:
		return holdfast.Errorf(holdfast.KindNotFound, "broker", "%s is no path of a model", holdfast.Quote(r.URL.Path))
	case r.Method != e.method:
		return holdfast.Errorf(holdfast.KindInvalid, "broker", "%s takes %s only", e.path, e.method)
	case r.URL.RawQuery != "" && r.URL.RawQuery != "beta=true":
		return holdfast.Errorf(holdfast.KindInvalid, "broker", "the query %s is not on the list", holdfast.Quote(r.URL.RawQuery))
	case r.Header.Get("Content-Encoding") != "":
		return holdfast.Errorf(holdfast.KindInvalid, "broker", "send the body without %s", holdfast.Quote(r.Header.Get("Content-Encoding")))
	}
	t, err := b.cfg.Turns.Traffic(r.Context(), id)
	if err != nil {
		return err
	}
	provider, up, err := b.upstream(t, e.api)
	if err != nil {
		return err
	}
	leave, err := b.enter(id)
	if err != nil {
		return err
	}
	defer leave()
	c := &call{b: b, r: r, w: w, e: e, t: t, id: id, provider: provider, up: up}
	if e.check != nil {
		raw, free, err := b.read(w, r, id)
		if err != nil {
			return err
		}
		defer free()
		if c.ask, err = e.check(raw, b.grants); err != nil {
			return err
		}
		c.size = int64(len(raw))
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	go func() {
		select {
		case <-t.Done():
			cancel(errTurnOver)
		case <-ctx.Done():
		}
	}()
	return c.run(ctx)
}

var errTurnOver = errors.New("the turn has ended")

// upstream is who answers a session: the provider of its model.
func (b *Broker) upstream(t runtime.Traffic, at *api) (string, Upstream, error) {
	model := t.Session().Model
	provider := b.cfg.Book.Provider(model)
	if provider != Scripted && provider != at.name {
		return "", Upstream{}, holdfast.Errorf(holdfast.KindDenied, "broker", "the session's model is %s, which is not asked by the API of %s", holdfast.Quote(model), at.name).
			WithHint("holdfast session update %s --model %s/MODEL", t.Session().ID, at.name)
	}
	up, ok := b.cfg.Upstreams[provider]
	if !ok {
		return "", Upstream{}, holdfast.Errorf(holdfast.KindUnavailable, "broker", "the provider %s is not configured", holdfast.Quote(provider)).
			WithHint("holdfast doctor shows the providers")
	}
	return provider, up, nil
}

const (
	bodyTimeout = 60 * time.Second
	bodyStep    = 256 << 10
)

var noDeadline time.Time

// read takes a body in, within the bounds of one, of the session and of all.
func (b *Broker) read(w http.ResponseWriter, r *http.Request, id holdfast.SessionID) (raw []byte, free func(), err error) {
	tooLarge := holdfast.Errorf(holdfast.KindTooLarge, "broker", "the request is over %d bytes", b.cfg.MaxBody)
	if r.ContentLength > b.cfg.MaxBody {
		return nil, nil, tooLarge
	}
	kept := int64(0)
	done := func() { b.free(id, kept) }
	defer func() {
		if err != nil {
			done()
		}
	}()
	_ = http.NewResponseController(w).SetReadDeadline(b.cfg.Now().Add(bodyTimeout))
	body := http.MaxBytesReader(w, r.Body, b.cfg.MaxBody)
	for {
		if len(raw) == cap(raw) {
			// What a client announced costs nothing until it comes.
			more := min(int64(max(len(raw), bodyStep)), b.cfg.MaxBody+1-int64(len(raw)))
			if err := b.keep(id, more); err != nil {
				return nil, nil, err
			}
			kept += more
			raw = slices.Grow(raw, int(more))
		}
		n, err := body.Read(raw[len(raw):cap(raw)])
		raw = raw[:len(raw)+n]
		var long *http.MaxBytesError
		switch {
		case errors.Is(err, io.EOF):
			_ = http.NewResponseController(w).SetReadDeadline(noDeadline)
			return raw, done, nil
		case errors.As(err, &long):
			return nil, nil, tooLarge
		case err != nil:
			return nil, nil, holdfast.Errorf(holdfast.KindInvalid, "broker", "the request broke off: %w", err)
		}
	}
}
