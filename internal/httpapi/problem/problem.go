package problem

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-run/holdfast"
)

const (
	// MediaType is the content type of a problem document.
	MediaType = "application/problem+json"
	// RequestID is the header with a request's id, which is in every answer. A caller may choose
	// the id itself, to find its request in the server's log.
	RequestID = "X-Request-Id"
)

// Problem is a problem document as the answer to a request, with its status and headers. The name
// of this type is also the name of its schema in the OpenAPI document.
type Problem struct {
	holdfast.Problem
	// retry is how long a caller should wait after a refusal of kind busy; 0 means one second.
	retry time.Duration
}

// RoutesHint is the hint of the problem document for an invalid request if its error has no hint.
const RoutesHint = "GET /docs describes each route"

// Of returns the problem document for an error. An error without a kind becomes internal, or
// unavailable if it says that a context was cancelled or its deadline passed.
func Of(err error) *Problem {
	kind := holdfast.KindOf(err)
	if kind == holdfast.KindInternal && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		kind = holdfast.KindUnavailable
	}
	d := &Problem{Problem: kind.Problem(err)}
	if d.Hint == "" && kind == holdfast.KindInvalid {
		d.Hint = RoutesHint
	}
	var t *timed
	if errors.As(err, &t) {
		d.retry = t.wait
	}
	return d
}

// Error returns the detail of the document.
func (d *Problem) Error() string { return d.Detail }

// GetStatus returns the HTTP status, for huma.
func (d *Problem) GetStatus() int { return d.Status }

// ContentType makes huma write the document as a problem document.
func (d *Problem) ContentType(string) string { return MediaType }

// GetHeaders returns the headers that a client needs to try again or to authenticate.
func (d *Problem) GetHeaders() http.Header {
	h := http.Header{}
	switch d.Kind {
	case holdfast.KindUnavailable:
		h.Set("Retry-After", "5")
	case holdfast.KindBusy:
		seconds := max(1, int(math.Ceil(d.retry.Seconds())))
		h.Set("Retry-After", strconv.Itoa(seconds))
	case holdfast.KindUnauthenticated:
		h.Set("WWW-Authenticate", `Bearer realm="holdfast"`)
	}
	return h
}

// Write sends the document as the answer, without huma. The caller may have replaced the status of
// its kind by a more precise one (405).
func (d *Problem) Write(w http.ResponseWriter) {
	for k, v := range d.GetHeaders() {
		w.Header()[k] = v
	}
	d.RequestID = w.Header().Get(RequestID)
	w.Header().Set("Content-Type", MediaType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Del("Content-Disposition")
	w.WriteHeader(d.Status)
	_ = json.NewEncoder(w).Encode(d) // the client may be gone
}

// After wraps a refusal together with the time that the caller should wait before it tries again.
func After(wait time.Duration, refusal *holdfast.Error) error { return &timed{refusal, wait} }

// timed is a refusal with the time after which the request may be tried again.
type timed struct {
	refusal *holdfast.Error
	wait    time.Duration
}

// Error returns the text of the refusal.
func (t *timed) Error() string { return t.refusal.Error() }

// Unwrap returns the refusal.
func (t *timed) Unwrap() error { return t.refusal }
