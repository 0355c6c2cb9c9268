package httpapi

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/holdfast-run/holdfast"
)

const (
	// slowest is the least that a sender must manage, in bytes per second, once the
	// limit of a single wait is over.
	slowest = 16 << 10
	// writeAtOnce is what a reader must take within the limit.
	writeAtOnce = 256 << 10
)

// patientBody cuts a sender that sends nothing for the limit, and one that keeps
// the connection alive with a byte now and then.
type patientBody struct {
	io.ReadCloser
	rc    *http.ResponseController
	now   func() time.Time
	limit time.Duration
	began time.Time
	got   int64
}

func (b *patientBody) Read(p []byte) (int, error) {
	now := b.now()
	if b.began.IsZero() {
		b.began = now
	}
	until := now.Add(b.limit)
	if whole := b.began.Add(b.limit + time.Duration(b.got/slowest)*time.Second); whole.Before(until) {
		until = whole
	}
	// A connection without deadlines (a test recorder) only loses the limit.
	_ = b.rc.SetReadDeadline(until)
	n, err := b.ReadCloser.Read(p)
	b.got += int64(n)
	if errors.Is(err, io.EOF) {
		// After any other error the deadline stays: closing the body reads on.
		_ = b.rc.SetReadDeadline(time.Time{})
	} else if err != nil {
		err = &bodyError{err}
	}
	return n, err
}

// bodyError marks what went wrong with a request's body as the sender's.
type bodyError struct{ err error }

func (e *bodyError) Error() string { return e.err.Error() }
func (e *bodyError) Unwrap() error { return e.err }

// checkLength refuses a body that says itself that it is too large, before
// anything of it is read.
func checkLength(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	if limit := ctx.Operation().MaxBodyBytes; r.ContentLength > limit {
		newProblem(holdfast.Errorf(holdfast.KindTooLarge, "request", "a body of %d bytes is too large, %d are taken", r.ContentLength, limit).
			WithHint("send less at once")).write(w)
		return
	}
	next(ctx)
}

// patientWriter cuts a reader that does not take an answer: each piece has a
// deadline of its own, so that a long answer may take long. The last deadline
// stays for what net/http still has to flush.
type patientWriter struct {
	http.ResponseWriter
	rc    *http.ResponseController
	now   func() time.Time
	limit time.Duration
}

func (w *patientWriter) Write(p []byte) (n int, err error) {
	for {
		part := p[n:min(len(p), n+writeAtOnce)]
		// A connection without deadlines only loses the limit.
		_ = w.rc.SetWriteDeadline(w.now().Add(w.limit))
		m, err := w.ResponseWriter.Write(part)
		if n += m; err != nil || n == len(p) {
			return n, err
		}
	}
}

// Unwrap lets a handler flush and take the connection over.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
