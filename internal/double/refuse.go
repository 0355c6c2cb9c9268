package double

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/holdfast-run/holdfast/agent/model"
)

// refusal is an error of the API, sent as a status or within a stream.
type refusal struct {
	status     int
	typ        string
	message    string
	retryAfter float64
}

func invalid(format string, args ...any) *refusal {
	return &refusal{http.StatusBadRequest, "invalid_request_error", fmt.Sprintf(format, args...), 0}
}

type envelope struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	RequestID string `json:"request_id,omitempty"`
}

func (r *refusal) envelope(id string) envelope {
	e := envelope{Type: "error", RequestID: id}
	e.Error.Type, e.Error.Message = r.typ, r.message
	return e
}

func refuse(w http.ResponseWriter, r *refusal) {
	if r.retryAfter > 0 {
		w.Header().Set("retry-after", strconv.FormatFloat(r.retryAfter, 'f', -1, 64))
	}
	writeJSON(w, r.status, r.envelope(w.Header().Get("request-id")))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("content-type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error here only means that the client went away
}

// classes maps the failures of a script to the API's errors. The other failures, cut and stall,
// end the connection.
var classes = map[string]refusal{
	"overloaded":     {status: 529, typ: "overloaded_error"},
	"rate_limit":     {status: http.StatusTooManyRequests, typ: "rate_limit_error"},
	"api":            {status: http.StatusInternalServerError, typ: "api_error"},
	"invalid":        {status: http.StatusBadRequest, typ: "invalid_request_error"},
	"authentication": {status: http.StatusUnauthorized, typ: "authentication_error"},
}

// refusalOf returns the API's form of a failure, or nil if the API has none and the connection is cut instead.
func refusalOf(err error) *refusal {
	f, ok := err.(*model.Failure)
	if !ok {
		return nil
	}
	r, ok := classes[f.Class]
	if !ok {
		return nil
	}
	r.message, r.retryAfter = f.Message, f.RetryAfterSeconds
	return &r
}

// mustRefuse is refusalOf for an error before the answer begins. If the API has no form for the error, it cuts the
// connection.
func mustRefuse(err error) *refusal {
	no := refusalOf(err)
	if no == nil {
		panic(http.ErrAbortHandler)
	}
	return no
}
