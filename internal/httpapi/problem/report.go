package problem

import (
	"log/slog"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/holdfast-run/holdfast"
)

// Reporter answers failed requests with problem documents, and logs each internal error once.
type Reporter struct{ log *slog.Logger }

// NewReporter returns a Reporter that logs to log.
func NewReporter(log *slog.Logger) *Reporter { return &Reporter{log} }

// Answer answers a request with the problem document for err.
func (r *Reporter) Answer(w http.ResponseWriter, req *http.Request, err error) {
	d := Of(err)
	r.logInternal(w, req, d)
	d.Write(w)
}

// Transform is called by huma for each answer. It adds the request id to a problem document, and
// logs an internal error.
func (r *Reporter) Transform(ctx huma.Context, _ string, v any) (any, error) {
	if d, ok := v.(*Problem); ok {
		req, w := humago.Unwrap(ctx)
		d.RequestID = w.Header().Get(RequestID)
		r.logInternal(w, req, d)
	}
	return v, nil
}

func (r *Reporter) logInternal(w http.ResponseWriter, req *http.Request, d *Problem) {
	if d.Kind == holdfast.KindInternal {
		r.Log(w, req).Error("request failed", "error", d.Detail)
	}
}

// Log returns a logger with the attributes of a request: its id, method, path and session.
func (r *Reporter) Log(w http.ResponseWriter, req *http.Request) *slog.Logger {
	log := r.log.With("request_id", w.Header().Get(RequestID), "method", req.Method, "path", req.URL.Path)
	path := req.URL.Path
	if path == "/v1/sessions" {
		path = w.Header().Get("Location") // the URL path of the session that the request created
	}
	if rest, ok := strings.CutPrefix(path, "/v1/sessions/"); ok {
		id, _, _ := strings.Cut(rest, "/")
		if id, err := holdfast.Parse[holdfast.SessionID](id); err == nil {
			log = log.With("session_id", id)
		}
	}
	return log
}
