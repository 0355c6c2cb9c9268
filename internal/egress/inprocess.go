package egress

import (
	"io"
	"net/http"
	"sync"
)

// InProcess returns an http.RoundTripper that passes requests to a handler within the server, such
// as the scripted model. If the handler aborts, its answer is cut off.
func InProcess(h http.Handler) http.RoundTripper { return inProcess{h} }

type inProcess struct{ h http.Handler }

// RoundTrip implements http.RoundTripper.
func (t inProcess) RoundTrip(req *http.Request) (*http.Response, error) {
	pr, pw := io.Pipe()
	w := &pipeWriter{header: http.Header{}, body: pw, ready: make(chan struct{})}
	out := req.Clone(req.Context())
	if out.Header.Get("X-Api-Key") == "" {
		out.Header.Set("X-Api-Key", "none")
	}
	go func() {
		defer func() {
			err := io.EOF
			if p := recover(); p != nil {
				err = io.ErrUnexpectedEOF
				if p != http.ErrAbortHandler {
					defer panic(p)
				}
			}
			w.WriteHeader(http.StatusOK)
			_ = pw.CloseWithError(err)
		}()
		t.h.ServeHTTP(w, out)
	}()
	select {
	case <-w.ready:
	case <-req.Context().Done():
		_ = pr.CloseWithError(req.Context().Err())
		return nil, req.Context().Err()
	}
	stop := closeWith(req, pr)
	return &http.Response{
		StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: w.sent, ContentLength: -1,
		Body: &pipeBody{pr, stop}, Request: req,
	}, nil
}

// closeWith closes the reader with an error when the request's context ends, until stop is called.
func closeWith(req *http.Request, pr *io.PipeReader) (stop func()) {
	done := make(chan struct{})
	var once sync.Once
	go func() {
		select {
		case <-req.Context().Done():
			_ = pr.CloseWithError(req.Context().Err())
		case <-done:
		}
	}()
	return func() { once.Do(func() { close(done) }) }
}

type pipeBody struct {
	*io.PipeReader
	stop func()
}

func (b *pipeBody) Close() error {
	b.stop()
	return b.PipeReader.Close()
}

// pipeWriter is the response writer that the handler gets. Its bytes go to the response's body.
type pipeWriter struct {
	header http.Header
	body   *io.PipeWriter
	once   sync.Once
	ready  chan struct{}
	status int
	sent   http.Header
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.ready)
	})
}

func (w *pipeWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Flush implements http.Flusher: nothing is held back.
func (w *pipeWriter) Flush() { w.WriteHeader(http.StatusOK) }
