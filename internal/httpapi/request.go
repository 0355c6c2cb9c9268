package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/holdfast-run/holdfast"
)

// requestHeader carries a request's id: in, so that a caller can find its own in
// our log, and out on every answer.
const requestHeader = "X-Request-Id"

// name gives a request its id: the caller's, if it is fit for a log, else a new one.
// What the request starts has it too.
func (a *API) name(w http.ResponseWriter, r *http.Request) *http.Request {
	id := r.Header.Get(requestHeader)
	if !requestID(id) {
		var err error
		if id, err = holdfast.NewUUID(a.cfg.Now(), a.cfg.Rand); err != nil {
			return r // without randomness the request has no name
		}
	}
	w.Header().Set(requestHeader, id)
	return r.WithContext(holdfast.WithRequestID(r.Context(), id))
}

// requestID accepts 1-64 letters, digits and -_.: and nothing that a terminal or
// another line of the log could be made of.
func requestID(s string) bool {
	for _, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("-_.:", rune(c)) {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// log is the log with what is known of a request.
func (a *API) log(w http.ResponseWriter, r *http.Request) *slog.Logger {
	log := a.cfg.Log.With("request_id", w.Header().Get(requestHeader), "method", r.Method, "path", r.URL.Path)
	of := r.URL.Path
	if of == "/v1/sessions" {
		// A session that the request made.
		of = w.Header().Get("Location")
	}
	if rest, ok := strings.CutPrefix(of, "/v1/sessions/"); ok {
		id, _, _ := strings.Cut(rest, "/")
		if id, err := holdfast.ParseSessionID(id); err == nil {
			log = log.With("session_id", id)
		}
	}
	return log
}

// failed logs what nobody expected: the edge logs, once.
func (a *API) failed(w http.ResponseWriter, r *http.Request, p *problem) {
	if p.Kind == holdfast.KindInternal {
		a.log(w, r).Error("request failed", "error", p.Detail)
	}
}

// finish is the transformer of huma's answers: a problem learns the id of its
// request.
func (a *API) finish(ctx huma.Context, _ string, v any) (any, error) {
	if p, ok := v.(*problem); ok {
		r, w := humago.Unwrap(ctx)
		p.RequestID = w.Header().Get(requestHeader)
		a.failed(w, r, p)
	}
	return v, nil
}

// answered counts a request, and logs it at the level debug: there are thousands a
// second.
func (a *API) answered(ctx context.Context, w *seen, r *http.Request, began time.Time) {
	a.cfg.Answered(w.pattern, w.status)
	if !a.cfg.Log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	a.log(w, r).Debug("request", "status", w.status, "bytes", w.bytes, "duration_ms", float64(a.cfg.Now().Sub(began).Microseconds())/1000)
}

// seen is a writer that knows what was answered.
type seen struct {
	http.ResponseWriter
	// pattern is the route's, empty until it is known.
	pattern string
	status  int
	bytes   int64
	// begun, if set, is called when the answer begins.
	begun func()
}

// WriteHeader notes the status.
func (s *seen) WriteHeader(status int) {
	if s.status == 0 || s.status < 200 {
		s.status = status
	}
	s.begin(status)
	s.ResponseWriter.WriteHeader(status)
}

func (s *seen) Write(p []byte) (int, error) {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	s.begin(s.status)
	n, err := s.ResponseWriter.Write(p)
	s.bytes += int64(n)
	return n, err
}

func (s *seen) begin(status int) {
	if s.begun != nil && status >= 200 {
		s.begun()
	}
}

// Unwrap gives http.ResponseController what is below.
func (s *seen) Unwrap() http.ResponseWriter { return s.ResponseWriter }
