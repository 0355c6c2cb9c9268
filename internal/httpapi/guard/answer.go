package guard

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
	"github.com/holdfast-run/holdfast/internal/obs"
)

// name gives a request an id: that of its X-Request-Id header if it is fit for logs, otherwise a
// new one. The id is in the answer's header and in the context of the returned request.
func (g *Guard) name(w http.ResponseWriter, r *http.Request) *http.Request {
	id := r.Header.Get(problem.RequestID)
	if !fitForLogs(id) {
		var err error
		if id, err = holdfast.NewUUID(g.cfg.Now(), g.cfg.Rand); err != nil {
			return r // without randomness the request has no id
		}
	}
	w.Header().Set(problem.RequestID, id)
	return r.WithContext(obs.WithRequestID(r.Context(), id))
}

// fitForLogs reports whether an id consists of 1-64 letters, digits and -_.: only, so that it
// cannot forge terminal sequences or log lines.
func fitForLogs(id string) bool {
	for _, c := range []byte(id) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("-_.:", rune(c)) {
			return false
		}
	}
	return id != "" && len(id) <= 64
}

// count reports an answered request to the metrics, and logs it at level debug, since there can be
// thousands in a second.
func (g *Guard) count(w *answer, r *http.Request, began time.Time) {
	g.cfg.Answered(w.pattern, w.status)
	if !g.cfg.Log.Enabled(r.Context(), slog.LevelDebug) {
		return
	}
	g.problems.Log(w, r).Debug("request", "status", w.status, "bytes", w.bytes, "duration_ms", float64(g.cfg.Now().Sub(began).Microseconds())/1000)
}

// writeAtOnce is the most bytes of an answer that are written under one deadline.
const writeAtOnce = 256 << 10

// answer is the response writer of all routes. It cuts off a client that does not read: each piece
// of an answer has its own deadline, so that a long answer may take long. The last deadline stays
// set for the bytes that net/http still has to flush.
type answer struct {
	http.ResponseWriter
	conn  *http.ResponseController
	now   func() time.Time
	limit time.Duration
	// pattern is the pattern of the request's route, empty until it is known.
	pattern string
	status  int
	bytes   int64
	// begun, if not nil, is called before each write of the answer; it releases the memory that is
	// reserved for the request's body.
	begun func()
}

// WriteHeader records the status and sends it.
func (w *answer) WriteHeader(status int) {
	if w.status < 200 {
		w.status = status
	}
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *answer) Write(p []byte) (n int, err error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.begin(w.status)
	for {
		piece := p[n:min(len(p), n+writeAtOnce)]
		// If the connection supports no deadlines, as in a test, the limit does not apply.
		_ = w.conn.SetWriteDeadline(w.now().Add(w.limit))
		m, err := w.ResponseWriter.Write(piece)
		w.bytes += int64(m)
		if n += m; err != nil || n == len(p) {
			return n, err
		}
	}
}

func (w *answer) begin(status int) {
	if w.begun != nil && status >= 200 {
		w.begun()
	}
}

// Unwrap returns the wrapped writer, so that a route can flush the connection or take it over.
func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
