package guard

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
)

// name gives a request an id: the one that the caller chose if it is fit for a log, else
// a new one. Everything that the request starts carries the id.
func (g *Guard) name(w http.ResponseWriter, r *http.Request) *http.Request {
	id := r.Header.Get(problem.RequestID)
	if !fitForLogs(id) {
		var err error
		if id, err = holdfast.NewUUID(g.cfg.Now(), g.cfg.Rand); err != nil {
			return r // without randomness the request has no id
		}
	}
	w.Header().Set(problem.RequestID, id)
	return r.WithContext(holdfast.WithRequestID(r.Context(), id))
}

// fitForLogs accepts ids of 1-64 letters, digits and -_.: only. No terminal sequence and
// no second line of a log can be made of them.
func fitForLogs(id string) bool {
	for _, c := range []byte(id) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("-_.:", rune(c)) {
			return false
		}
	}
	return id != "" && len(id) <= 64
}

// count counts an answered request. It logs it at the level debug, since there are
// thousands in a second.
func (g *Guard) count(w *answer, r *http.Request, began time.Time) {
	g.cfg.Answered(w.pattern, w.status)
	if !g.cfg.Log.Enabled(r.Context(), slog.LevelDebug) {
		return
	}
	g.problems.Log(w, r).Debug("request", "status", w.status, "bytes", w.bytes, "duration_ms", float64(g.cfg.Now().Sub(began).Microseconds())/1000)
}

// writeAtOnce is how many bytes a reader must take within the limit.
const writeAtOnce = 256 << 10

// answer is the response writer of all routes. It cuts off a reader that does not take an
// answer: each piece has a deadline of its own, so that a long answer may take long. The
// last deadline stays for the bytes that net/http still has to flush.
type answer struct {
	http.ResponseWriter
	conn  *http.ResponseController
	now   func() time.Time
	limit time.Duration
	// pattern is the route's, empty until it is known.
	pattern string
	status  int
	bytes   int64
	// begun, if set, is called when the answer begins.
	begun func()
}

// WriteHeader notes the status.
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
		// A connection that has no deadlines, as in a test, only loses the limit.
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

// Unwrap lets a route flush the connection and take it over.
func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
