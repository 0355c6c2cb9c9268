package body

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/holdfast-run/holdfast"
)

const (
	// Small is the size up to which a body never waits for memory that others use, and the size
	// limit of bodies with settings only.
	Small = 1 << 20
	// Large is the size limit of a JSON body with text: enough for a message of holdfast.MaxText
	// bytes with every character escaped.
	Large = 2*holdfast.MaxText + 1<<20
)

// CheckLength refuses a body whose announced length is over the limit, before any of it
// is read.
func CheckLength(r *http.Request, limit int64) error {
	if r.ContentLength <= limit {
		return nil
	}
	return holdfast.Errorf(holdfast.KindTooLarge, "request", "a body of %d bytes is too large: the limit is %d bytes", r.ContentLength, limit).
		WithHint("send a smaller body")
}

// CheckNone refuses a request with a body. A body of zero bytes is accepted, even if its length
// was not announced.
func CheckNone(r *http.Request) error {
	if r.ContentLength < 0 {
		n, err := io.ReadFull(r.Body, make([]byte, 1))
		if n == 0 && errors.Is(err, io.EOF) {
			return nil
		}
		if n == 0 {
			return Failure(err, 0)
		}
	}
	if r.ContentLength == 0 {
		return nil
	}
	return holdfast.Errorf(holdfast.KindInvalid, "request", "the request %s %s takes no body", r.Method, holdfast.Quote(r.URL.Path)).
		WithHint("send the request without a body")
}

// ReadAll reads the whole body of an upload into memory; it fails if the body is larger than limit.
func ReadAll(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	var data bytes.Buffer
	// Allocate at most 1 MiB in advance: the announced bytes may never come.
	data.Grow(int(min(max(r.ContentLength, 0), limit, 1<<20)) + bytes.MinRead)
	_, err := data.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	return data.Bytes(), Failure(err, limit)
}

// Upload returns a reader of an upload's body that fails if the body is larger than limit. Its
// errors, except io.EOF, are those of Failure.
func Upload(w http.ResponseWriter, r *http.Request, limit int64) io.Reader {
	return &upload{http.MaxBytesReader(w, r.Body, limit), limit}
}

type upload struct {
	r     io.Reader
	limit int64
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = Failure(err, u.limit)
	}
	return n, err
}

// Failure returns the refusal for err, an error of reading a body; nil for nil. limit is the size
// limit of the body, for the text of the refusal.
func Failure(err error, limit int64) error {
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large):
		return holdfast.Errorf(holdfast.KindTooLarge, "upload", "the request body is larger than %d bytes", limit).
			WithHint("send a smaller body; a larger file can be made in the box, with exec")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return holdfast.Errorf(holdfast.KindInvalid, "upload", "the request body is incomplete: it ended early").WithHint("send the request again")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return holdfast.Errorf(holdfast.KindUnavailable, "upload", "the request body did not arrive in time").WithHint("send the request again")
	}
	return holdfast.Errorf(holdfast.KindInvalid, "upload", "the request body did not arrive whole: %w", err).WithHint("send the request again")
}
