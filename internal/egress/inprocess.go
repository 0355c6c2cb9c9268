package egress

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// InProcess returns an http.RoundTripper that passes requests to a handler within the server, such as the
// scripted model. If the handler panics with http.ErrAbortHandler, its answer is cut off.
func InProcess(h http.Handler) http.RoundTripper { return inProcess{h} }

type inProcess struct{ h http.Handler }

// RoundTrip implements http.RoundTripper. It opens a connection for each request, which is closed with the
// body of the answer.
func (t inProcess) RoundTrip(req *http.Request) (*http.Response, error) {
	near, far := net.Pipe()
	server := &http.Server{Handler: t.h, ErrorLog: quiet, ReadHeaderTimeout: headerTimeout}
	go func() { _ = server.Serve(&single{Conn: far}) }() // Serve returns once it has accepted the one connection
	out := req.Clone(req.Context())
	if out.Header.Get("X-Api-Key") == "" {
		out.Header.Set("X-Api-Key", "none")
	}
	client := &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return near, nil },
		DisableKeepAlives: true, DisableCompression: true,
	}
	answer, err := client.RoundTrip(out)
	if err != nil {
		_ = near.Close() // the request may have failed before the client took the connection
	}
	return answer, err
}

// single is a net.Listener that accepts one connection, which exists already.
type single struct {
	net.Conn
	once sync.Once
}

// Accept returns the connection at the first call, and net.ErrClosed at later ones.
func (l *single) Accept() (c net.Conn, err error) {
	err = net.ErrClosed
	l.once.Do(func() { c, err = l.Conn, nil })
	return c, err
}

// Addr implements net.Listener.
func (l *single) Addr() net.Addr { return l.LocalAddr() }

// Close does nothing: it does not close the connection.
func (l *single) Close() error { return nil }
