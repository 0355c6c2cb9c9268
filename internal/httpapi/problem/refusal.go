package problem

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/holdfast-run/holdfast"
)

// UseForHuma makes huma refuse requests with this package's documents, because its own errors have
// no kind, and makes it compare the names of fields with their case. Both are process-wide.
//
//nolint:gochecknoglobals // huma keeps these settings in globals of its own.
var UseForHuma = sync.OnceFunc(func() {
	huma.ValidateStrictCasing = true
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return refusal(nil, status, msg, errs...)
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
		return refusal(allowed(ctx.Operation()), status, msg, errs...)
	}
})

// Places is a set of places in a request, such as "body.tags[]" and "query.limit".
type Places map[string]bool

// placesKey is the key of an operation's Places in its metadata.
const placesKey = "repeatable places"

// Allow sets the places at which problem documents may repeat the values of an operation's
// requests. They must be places where the schema accepts only a number, a boolean or one of a
// list, and so no secret. Free text, unknown fields and text that is not JSON are never
// repeated (I-22).
func Allow(op *huma.Operation, places Places) {
	op.Metadata = map[string]any{placesKey: places}
}

func allowed(op *huma.Operation) Places {
	p, _ := op.Metadata[placesKey].(Places)
	return p
}

var index = regexp.MustCompile(`\[\d+\]`)

func (p Places) has(place string) bool { return p[index.ReplaceAllString(place, "[]")] }

// refusal turns a refusal by huma into a problem document: a request that does not validate is
// invalid (400), and the detail names up to three places and reasons. may are the places whose
// values may be repeated.
func refusal(may Places, status int, msg string, errs ...error) huma.StatusError {
	var ours *holdfast.Error
	if len(errs) > 0 && errors.As(errs[0], &ours) {
		return Of(ours)
	}
	if status >= 500 && len(errs) > 0 {
		return Of(holdfast.Errorf(holdfast.KindInternal, "request", "%s: %w", msg, errs[0]))
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
		parts = append(parts, describe(may, err))
	}
	if len(parts) == 0 {
		parts = append(parts, msg)
	}
	e := holdfast.Errorf(kind, "request", "%s", strings.Join(parts, "; "))
	if status == http.StatusUnsupportedMediaType {
		e = e.WithHint("send Content-Type: application/json")
	}
	return Of(e)
}

// describe renders one validation error as "where: why", and adds ", got value" at places
// whose values may be repeated.
func describe(may Places, err error) string {
	var d *huma.ErrorDetail
	if !errors.As(err, &d) {
		return err.Error()
	}
	out := d.Message
	if d.Location != "" {
		// Quote the location too: the sender may have chosen the name of the field.
		out = strings.Trim(holdfast.Quote(d.Location), `"`) + ": " + out
	}
	if d.Message == validation.MsgUnexpectedProperty || !may.has(d.Location) {
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
