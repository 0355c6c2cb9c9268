package problem

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/holdfast-run/holdfast"
)

// TestTitlesAreHTTPs: the vocabulary's titles are HTTP's own texts.
func TestTitlesAreHTTPs(t *testing.T) {
	for _, k := range holdfast.Words[holdfast.Kind]() {
		if p := Of(holdfast.Errorf(k, "x", "y")); p.Title != http.StatusText(p.Status) || p.Title == "" {
			t.Errorf("%s: %q", k, p.Title)
		}
	}
}

// TestOf: errors without a kind are internal, those of a client that left unavailable, and
// a refusal that ends says when.
func TestOf(t *testing.T) {
	for _, c := range []struct {
		err   error
		kind  holdfast.Kind
		retry string
	}{
		{errors.New("x"), holdfast.KindInternal, ""},
		{fmt.Errorf("x: %w", context.Canceled), holdfast.KindUnavailable, "5"},
		{holdfast.Errorf(holdfast.KindBusy, "x", "y"), holdfast.KindBusy, "1"},
		{After(time.Minute+time.Minute/7, holdfast.Errorf(holdfast.KindBusy, "x", "y").WithHint("h")), holdfast.KindBusy, "69"},
	} {
		d := Of(c.err)
		if got := d.GetHeaders().Get("Retry-After"); d.Kind != c.kind || got != c.retry {
			t.Errorf("%v: %s, Retry-After %q", c.err, d.Kind, got)
		}
	}
	if d := Of(After(time.Minute, holdfast.Errorf(holdfast.KindBusy, "op", "no").WithHint("h"))); d.Detail != "op: no" || d.Hint != "h" {
		t.Errorf("%+v", d)
	}
}

// TestInternalErrorsAreLogged, with the id of their request, and no others.
func TestInternalErrorsAreLogged(t *testing.T) {
	var log bytes.Buffer
	r := NewReporter(slog.New(slog.NewJSONHandler(&log, nil)))
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	for _, err := range []error{holdfast.Errorf(holdfast.KindNotFound, "op", "hidden"), errors.New("broken inside")} {
		w := httptest.NewRecorder()
		w.Header().Set(RequestID, "r1")
		r.Answer(w, httptest.NewRequest(http.MethodGet, "http://localhost/v1/sessions/"+id+"/turns", nil), err)
		var p holdfast.Problem
		if json.Unmarshal(w.Body.Bytes(), &p) != nil || p.RequestID != "r1" || w.Code != p.Status {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	var line map[string]any
	if err := json.Unmarshal(log.Bytes(), &line); err != nil || line["request_id"] != "r1" || line["session_id"] != id || line["error"] != "broken inside" {
		t.Errorf("%s: %v", log.String(), err)
	}
}

// TestOnlyAllowedValuesAreRepeated (I-22).
func TestOnlyAllowedValuesAreRepeated(t *testing.T) {
	op := &huma.Operation{}
	Allow(op, Places{"body.trust": true, "body.tags[].n": true})
	for _, c := range []struct {
		detail huma.ErrorDetail
		want   string
	}{
		{huma.ErrorDetail{Message: "wrong", Location: "body.trust", Value: "full"}, `body.trust: wrong, got "full"`},
		{huma.ErrorDetail{Message: "wrong", Location: "body.tags[7].n", Value: 5}, "body.tags[7].n: wrong, got 5"},
		{huma.ErrorDetail{Message: "wrong", Location: "body.trust", Value: map[string]any{"a": "SECRET"}}, "body.trust: wrong"},
		{huma.ErrorDetail{Message: "wrong", Location: "body.title", Value: "SECRET"}, "body.title: wrong"},
		{huma.ErrorDetail{Message: validation.MsgUnexpectedProperty, Location: "body.trust", Value: "SECRET"}, "body.trust: " + validation.MsgUnexpectedProperty},
	} {
		got := refusal(allowed(op), http.StatusUnprocessableEntity, "validation failed", &c.detail)
		if got.GetStatus() != http.StatusBadRequest || !strings.HasSuffix(got.Error(), c.want) || strings.Contains(got.Error(), "SECRET") {
			t.Errorf("%+v: %d %q", c.detail, got.GetStatus(), got.Error())
		}
	}
}
