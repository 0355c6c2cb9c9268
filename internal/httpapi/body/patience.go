package body

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// slowest is the lowest average rate, in bytes per second, of a sender whose body takes longer
// than the limit of a single pause.
const slowest = 16 << 10

// Patient wraps a body so that its reads fail if the sender pauses for longer than limit, or sends
// more slowly than slowest on average. It sets read deadlines on conn.
func Patient(from io.ReadCloser, conn *http.ResponseController, now func() time.Time, limit time.Duration) io.ReadCloser {
	return &patient{ReadCloser: from, conn: conn, now: now, limit: limit}
}

type patient struct {
	io.ReadCloser
	conn  *http.ResponseController
	now   func() time.Time
	limit time.Duration
	began time.Time
	got   int64
}

func (b *patient) Read(p []byte) (int, error) {
	now := b.now()
	if b.began.IsZero() {
		b.began = now
	}
	until := now.Add(b.limit)
	if whole := b.began.Add(b.limit + time.Duration(b.got/slowest)*time.Second); whole.Before(until) {
		until = whole
	}
	// If the connection supports no deadlines, as in a test, the limit does not apply.
	_ = b.conn.SetReadDeadline(until)
	n, err := b.ReadCloser.Read(p)
	b.got += int64(n)
	if errors.Is(err, io.EOF) {
		// After another error the deadline stays, because closing the body reads from it again.
		_ = b.conn.SetReadDeadline(time.Time{})
	} else if err != nil {
		err = &broken{err}
	}
	return n, err
}

// broken is the error of a body that did not arrive completely. It has the text of the
// connection's error, and wraps that error and the refusal that the sender gets.
type broken struct{ err error }

func (e *broken) Error() string   { return e.err.Error() }
func (e *broken) Unwrap() []error { return []error{e.err, Failure(e.err, 0)} }
