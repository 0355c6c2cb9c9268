package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/holdfast-run/holdfast"
)

const problemType = "application/problem+json"

// problem is the error document as huma writes it.
type problem struct {
	holdfast.Problem
	// retry is when to try again; 0 is the kind's usual.
	retry time.Duration
}

// newProblem renders an error of any kind. Errors that carry no kind are
// internal; a request whose client went away is unavailable.
func newProblem(err error) *problem {
	kind := holdfast.KindOf(err)
	if kind == holdfast.KindInternal && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		kind = holdfast.KindUnavailable
	}
	p := &problem{Problem: holdfast.NewProblem(kind, err)}
	if p.Hint == "" && kind == holdfast.KindInvalid {
		p.Hint = "GET /docs describes each route"
	}
	var w *waiting
	if errors.As(err, &w) {
		p.retry = w.wait
	}
	return p
}

// Error is the detail.
func (p *problem) Error() string { return p.Detail }

// GetStatus is the HTTP status.
func (p *problem) GetStatus() int { return p.Status }

// ContentType makes huma write the document as problem+json.
func (p *problem) ContentType(string) string { return problemType }

// GetHeaders adds what a client needs to try again or to authenticate.
func (p *problem) GetHeaders() http.Header {
	h := http.Header{}
	switch p.Kind {
	case holdfast.KindUnavailable:
		h.Set("Retry-After", "5")
	case holdfast.KindBusy:
		seconds := max(1, int(math.Ceil(p.retry.Seconds())))
		h.Set("Retry-After", strconv.Itoa(seconds))
	case holdfast.KindUnauthenticated:
		h.Set("WWW-Authenticate", `Bearer realm="holdfast"`)
	}
	return h
}

// write sends the document outside of huma. The status may differ from the
// kind's own where HTTP has a finer one (405).
func (p *problem) write(w http.ResponseWriter) {
	for k, v := range p.GetHeaders() {
		w.Header()[k] = v
	}
	p.RequestID = w.Header().Get(requestHeader)
	w.Header().Set("Content-Type", problemType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Del("Content-Disposition")
	w.WriteHeader(p.Status)
	// The client may be gone; there is nobody left to tell.
	_ = json.NewEncoder(w).Encode(p)
}

// hookHuma points huma's process-wide settings at our documents: its own error
// model has no kind, and it would take "Text" for "text".
//
//nolint:gochecknoglobals // huma keeps these settings in globals of its own.
var hookHuma = sync.OnceFunc(func() {
	huma.ValidateStrictCasing = true
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return refusal(nil, status, msg, errs...)
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
		return refusal(toldOf(ctx.Operation()), status, msg, errs...)
	}
})

// refusal turns huma's refusals into problems: what does not validate is invalid
// (400), naming where and what.
func refusal(t told, status int, msg string, errs ...error) huma.StatusError {
	var body *bodyError
	if len(errs) > 0 && errors.As(errs[0], &body) {
		return newProblem(uploadError(body, 0))
	}
	if status >= 500 && len(errs) > 0 {
		return newProblem(holdfast.Errorf(holdfast.KindInternal, "request", "%s: %w", msg, errs[0]))
	}
	kind := holdfast.KindInvalid
	switch {
	case status == http.StatusRequestEntityTooLarge:
		kind = holdfast.KindTooLarge
	case status >= 500:
		kind = holdfast.KindInternal
	}
	var parts []string
	for i, err := range errs {
		if i == 3 {
			parts = append(parts, strconv.Itoa(len(errs)-i)+" more")
			break
		}
		parts = append(parts, describe(t, err))
	}
	if len(parts) == 0 {
		parts = append(parts, msg)
	}
	e := holdfast.Errorf(kind, "request", "%s", strings.Join(parts, "; "))
	if status == http.StatusUnsupportedMediaType {
		e = e.WithHint("send Content-Type: application/json")
	}
	return newProblem(e)
}

// describe renders one validation error as "where: what", and "got value" where
// the place is one whose values may be told (I-22).
func describe(t told, err error) string {
	var d *huma.ErrorDetail
	if !errors.As(err, &d) {
		return err.Error()
	}
	out := d.Message
	if d.Location != "" {
		// A name is the sender's text as much as a value is.
		out = strings.Trim(holdfast.Quote(d.Location), `"`) + ": " + out
	}
	if d.Message == validation.MsgUnexpectedProperty || !t.may(d.Location) {
		return out
	}
	switch v := d.Value.(type) {
	case string:
		return out + ", got " + holdfast.Quote(v)
	case nil, map[string]any, []any:
		return out
	}
	raw, jerr := json.Marshal(d.Value)
	if jerr != nil {
		return out
	}
	return out + ", got " + string(raw)
}
