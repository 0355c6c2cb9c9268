package egress

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Limits of the HTTP connections from boxes: the time to send a request's header, the idle time
// between requests, and the bytes of a header.
const (
	headerTimeout = 15 * time.Second
	idleTimeout   = 10 * time.Minute
	maxHeader     = 64 << 10
)

// door is an HTTP server for connections that the method serve gets, each with the session whose box opened it.
type door struct {
	http  *http.Server
	conns chan net.Conn
	once  sync.Once
	shut  chan struct{}
	done  chan struct{}

	// handlers counts the running handlers; none starts after closed is set.
	mu       sync.Mutex
	closed   bool
	handlers sync.WaitGroup
}

type boxKey struct{}

// boxConn is a connection from the box of a session. If key is not empty, other sessions can connect to the
// same port, so each request has to carry the key.
type boxConn struct {
	net.Conn
	session holdfast.SessionID
	key     string
}

// CloseWrite closes the server's sending side. net/http needs it to deliver an answer that is sent
// before the whole request was read.
func (c *boxConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

func sessionOf(ctx context.Context) holdfast.SessionID {
	if c, ok := ctx.Value(boxKey{}).(*boxConn); ok {
		return c.session
	}
	return ""
}

// newDoor returns a running door whose requests are handled by h. Panics of h are logged, except http.ErrAbortHandler.
func newDoor(h http.Handler, logger *slog.Logger) *door {
	d := &door{conns: make(chan net.Conn), shut: make(chan struct{}), done: make(chan struct{})}
	d.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !d.begin() {
				panic(http.ErrAbortHandler)
			}
			defer d.handlers.Done()
			defer func() {
				if p := recover(); p != nil {
					if p != http.ErrAbortHandler {
						logger.Error("egress: a request handler panicked", "session", sessionOf(r.Context()), "panic", p, "stack", string(debug.Stack()))
					}
					panic(http.ErrAbortHandler)
				}
			}()
			if c, ok := r.Context().Value(boxKey{}).(*boxConn); ok && !c.admits(r) {
				refuseStranger(w, r)
				return
			}
			h.ServeHTTP(w, r)
		}), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		// Malformed requests of boxes are not logged: a box could flood the server's log.
		ErrorLog: quiet,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, boxKey{}, c)
		},
	}
	go func() {
		defer close(d.done)
		_ = d.http.Serve(d) // Serve returns only after d.close, always with an error
	}()
	return d
}

// serve passes a connection to the HTTP server, or closes it if the door is closed.
func (d *door) serve(id holdfast.SessionID, key string, conn net.Conn) {
	select {
	case d.conns <- &boxConn{conn, id, key}:
	case <-d.shut:
		_ = conn.Close()
	}
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.shut:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (d *door) Close() error {
	d.once.Do(func() { close(d.shut) })
	return nil
}

// Addr implements net.Listener.
func (d *door) Addr() net.Addr { return &net.UnixAddr{Name: "box", Net: "unix"} }

func (d *door) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.handlers.Add(1)
	}
	return !d.closed
}

// close makes the door accept no more connections, and closes those it has, except tunnels (taken over by a handler).
func (d *door) close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	err := d.http.Close()
	<-d.done
	return err
}

// wait waits until all handlers have returned.
func (d *door) wait() { d.handlers.Wait() }
