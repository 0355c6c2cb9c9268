package body

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// slowest is the rate, in bytes per second, that a sender must keep up once the limit of
// a single wait has passed.
const slowest = 16 << 10

// Patient returns a body whose reads fail once the sender has sent nothing for the limit,
// or sends so little that it only keeps the connection open.
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
	// A connection that has no deadlines, as in a test, only loses the limit.
	_ = b.conn.SetReadDeadline(until)
	n, err := b.ReadCloser.Read(p)
	b.got += int64(n)
	if errors.Is(err, io.EOF) {
		// After any other error the deadline stays: closing the body reads on.
		_ = b.conn.SetReadDeadline(time.Time{})
	} else if err != nil {
		err = &broken{err}
	}
	return n, err
}

// broken is the error of a body that did not arrive whole. It keeps the text of the
// connection's error and wraps the refusal that the sender gets.
type broken struct{ err error }

func (e *broken) Error() string   { return e.err.Error() }
func (e *broken) Unwrap() []error { return []error{e.err, Failure(e.err, 0)} }
