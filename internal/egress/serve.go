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

// What a client in a box may take its time for.
const (
	headerTimeout = 15 * time.Second
	idleTimeout   = 10 * time.Minute
	maxHeader     = 64 << 10
)

// door serves HTTP on connections that are handed to it, each on behalf of a session.
type door struct {
	http  *http.Server
	conns chan net.Conn
	once  sync.Once
	shut  chan struct{}
	done  chan struct{}

	// handlers are those under way; none begins once it is closed.
	mu       sync.Mutex
	closed   bool
	handlers sync.WaitGroup
}

type sessionKey struct{}

// boxConn is a connection out of the box of a session.
type boxConn struct {
	net.Conn
	session holdfast.SessionID
}

// CloseWrite ends our bytes; an answer before the end of a request needs that to arrive.
func (c *boxConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

func sessionOf(ctx context.Context) holdfast.SessionID {
	id, _ := ctx.Value(sessionKey{}).(holdfast.SessionID)
	return id
}

// newDoor makes a door; what goes wrong in a handler is told to log.
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
						logger.Error("egress: a handler failed", "session", sessionOf(r.Context()), "panic", p, "stack", string(debug.Stack()))
					}
					panic(http.ErrAbortHandler)
				}
			}()
			h.ServeHTTP(w, r)
		}), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		// What a box sends is no news for the server's log.
		ErrorLog: quiet,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, sessionKey{}, c.(*boxConn).session)
		},
	}
	go func() {
		defer close(d.done)
		_ = d.http.Serve(d) // it returns only after close, so its error says nothing
	}()
	return d
}

// serve takes a connection over.
func (d *door) serve(id holdfast.SessionID, conn net.Conn) {
	select {
	case d.conns <- &boxConn{conn, id}:
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

// close drops all connections but those that a handler took over.
func (d *door) close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	err := d.http.Close()
	<-d.done
	return err
}

// wait returns when the last handler has.
func (d *door) wait() { d.handlers.Wait() }
