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

// api is one of the model APIs that boxes may use.
type api struct {
	name string
	// refuse answers with an error in the API's format.
	refuse func(w http.ResponseWriter, status int, kind, message string)
	// meter returns a new meter for the tokens of an answer.
	meter func() meter.Meter
}

// endpoint is one path of a model API and the requests that it accepts.
type endpoint struct {
	api    *api
	method string
	// path is appended to the provider's base URL.
	path string
	// check returns what a request body asks for, or an error that refuses it. It is nil for a path whose
	// requests have no body.
	check func(raw []byte, g grants) (ask, error)
	// free is true if requests cost nothing.
	free bool
}

var (
	messagesAPI = &api{name: Anthropic, refuse: refuseMessages, meter: meter.Messages}
	chatAPI     = &api{name: OpenAI, refuse: refuseChat, meter: meter.Chat}
)

// endpoints are all endpoints of the broker, by the path that a box uses.
var endpoints = map[string]endpoint{
	"/v1/messages":              {messagesAPI, http.MethodPost, "/v1/messages", checkMessages, false},
	"/v1/messages/count_tokens": {messagesAPI, http.MethodPost, "/v1/messages/count_tokens", checkMessages, true},
	"/v1/chat/completions":      {chatAPI, http.MethodPost, "/chat/completions", checkChat, false},
	"/v1/models":                {chatAPI, http.MethodGet, "/models", nil, true},
}

// ask holds the parts of a model request that the broker uses.
type ask struct {
	model  string
	stream bool
	// most is the most tokens that the answer may have.
	most     int64
	messages int
	// body is sent to the provider: the request as it came, with include_usage added if it lacked
	// that.
	body []byte
}

func (b *Broker) route(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead && r.URL.Path == "/" {
		return // clients send HEAD / to open their connection early
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
		panic(http.ErrAbortHandler) // the client has disconnected, or a part of the answer was already sent
	}
	b.denied(r, at, err)
	status, kind := statusOf(err)
	message := "holdfast: " + messageOf(err)
	if hint := holdfast.HintOf(err); hint != "" {
		message += " (hint: " + hint + ")"
	}
	patient(w, b.cfg.Now())
	at.refuse(w, status, kind, message)
}

// denied records a refused request, if the error is of kind invalid, denied, not_found or too_large. It does
// not record other errors, such as that the server or the provider is busy or unavailable.
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

// messageOf returns the message of an error without the name of the operation, which would mean nothing to a
// reader in a box.
func messageOf(err error) string {
	var e *holdfast.Error
	if errors.As(err, &e) && e.Msg != "" {
		return e.Msg
	}
	return err.Error()
}

// statusOf returns the HTTP status and the error type that both model APIs use for an error.
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

// handle checks a request, sends it to the provider and passes the answer to the box. If it fails before an
// answer has begun, it returns the error to answer with; after that http.ErrAbortHandler.
func (b *Broker) handle(w http.ResponseWriter, r *http.Request, e endpoint, ok bool) error {
	id := sessionOf(r.Context())
	switch {
	case !ok || r.URL.EscapedPath() != r.URL.Path:
		return holdfast.Errorf(holdfast.KindNotFound, "broker", "the request path %s is not a path of a model API", holdfast.Quote(r.URL.Path))
	case r.Method != e.method:
		return holdfast.Errorf(holdfast.KindInvalid, "broker", "the path %s accepts only the method %s", e.path, e.method)
	case r.URL.RawQuery != "" && r.URL.RawQuery != "beta=true":
		return holdfast.Errorf(holdfast.KindInvalid, "broker", "the URL query %s is not on the list of allowed queries", holdfast.Quote(r.URL.RawQuery))
	case r.Header.Get("Content-Encoding") != "":
		return holdfast.Errorf(holdfast.KindInvalid, "broker", "the content encoding %s of the request is not accepted: send the body without one", holdfast.Quote(r.Header.Get("Content-Encoding")))
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

var errTurnOver = errors.New("the turn ended during this model call")

// upstream returns the provider of the session's model and how to reach it. It refuses a request in
// the API of another provider.
func (b *Broker) upstream(t runtime.Traffic, at *api) (string, Upstream, error) {
	model := t.Session().Model
	provider := b.cfg.Book.Provider(model)
	if provider != Scripted && provider != at.name {
		return "", Upstream{}, holdfast.Errorf(holdfast.KindDenied, "broker", "the session's model is %s, which cannot be used through the API of %s", holdfast.Quote(model), at.name).
			WithHint("holdfast session update %s --model %s/MODEL", t.Session().ID, at.name)
	}
	up, ok := b.cfg.Upstreams[provider]
	if !ok {
		return "", Upstream{}, holdfast.Errorf(holdfast.KindUnavailable, "broker", "the model provider %s is not configured", holdfast.Quote(provider)).
			WithHint("holdfast doctor shows the providers")
	}
	return provider, up, nil
}

const (
	bodyTimeout = 60 * time.Second
	bodyStep    = 256 << 10
)

var noDeadline time.Time

// read reads the body of a request into memory, within the limits of a request, of its session and of
// all requests. free releases the reserved memory.
func (b *Broker) read(w http.ResponseWriter, r *http.Request, id holdfast.SessionID) (raw []byte, free func(), err error) {
	tooLarge := holdfast.Errorf(holdfast.KindTooLarge, "broker", "the model request is larger than %d bytes", b.cfg.MaxBody)
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
			// Reserve memory for the bytes as they arrive, not for the length that the request announces.
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
			return nil, nil, holdfast.Errorf(holdfast.KindInvalid, "broker", "the body of the model request could not be read to its end: %w", err)
		}
	}
}
