package sandbox

import (
	"context"
	"encoding/json"
	"net"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// releaseMost is how many calls one request may release.
const releaseMost = 250

// releaseLoop sends the releases, and closes the streams, that no request took along, until
// the pipe ends.
func (l *link) releaseLoop() {
	ctx, cancel := context.WithCancel(linkContext{l})
	defer cancel()
	for {
		select {
		case <-l.release:
		case <-l.done():
			return
		}
		t := time.NewTimer(releaseDelay)
		select {
		case <-t.C:
		case <-l.done():
			t.Stop()
			return
		}
		for l.unreleased() {
			if _, err := query[wire.Empty](ctx, &Box{link: l}, wire.OpRelease, wire.Empty{}); err != nil {
				break // a stale or broken pipe: the next hello shows what is held
			}
		}
		l.endStreams(false)
	}
}

// forget has boxd forget calls of a session with the next request, or soon without one.
func (l *link) forget(session holdfast.SessionID, calls []holdfast.CallID) {
	l.mu.Lock()
	for _, c := range calls {
		l.releases = append(l.releases, wire.Released{Call: c, Session: session})
	}
	l.mu.Unlock()
	select {
	case l.release <- struct{}{}:
	default:
	}
}

// ended has an answered stream closed with the next request, or soon without one: closing it
// alone would wake boxd for nothing.
func (l *link) ended(stream *yamux.Stream) {
	l.mu.Lock()
	l.over = append(l.over, stream)
	l.mu.Unlock()
	select {
	case l.release <- struct{}{}:
	default:
	}
}

// endStreams closes the answered streams; request: a request follows at once.
func (l *link) endStreams(request bool) {
	l.mu.Lock()
	over := l.over
	l.over = nil
	l.mu.Unlock()
	if request && len(over) > 0 {
		ids := make([]uint32, len(over))
		for i, stream := range over {
			ids[i] = stream.StreamID()
		}
		l.mux.Ends(ids)
	}
	for _, stream := range over {
		_ = stream.Close()
	}
}

func (l *link) unreleased() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.releases) > 0
}

// unsentReleases takes as many gathered releases as a request may carry.
func (l *link) unsentReleases() []wire.Released {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.releases), releaseMost)
	out := l.releases[:n:n]
	if l.releases = l.releases[n:]; len(l.releases) == 0 {
		l.releases = nil
	}
	return out
}

// linkContext is a context that ends with the pipe.
type linkContext struct{ l *link }

func (linkContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c linkContext) Done() <-chan struct{}     { return c.l.done() }
func (linkContext) Value(any) any               { return nil }

// Err is ErrLost after the pipe ended.
func (c linkContext) Err() error {
	select {
	case <-c.l.done():
		return ErrLost
	default:
		return nil
	}
}

// accept serves the streams that boxd opens: accepted proxy connections.
func (l *link) accept() {
	for {
		stream, err := l.streams.AcceptStream()
		if err != nil {
			_ = l.streams.Close()
			return
		}
		go l.serveAccepted(stream)
	}
}

func (l *link) serveAccepted(stream *yamux.Stream) {
	conn := &proxyConn{Stream: stream}
	t, payload, err := wire.ReadFrame(stream)
	var req wire.Request
	var acc wire.AcceptedRequest
	if err != nil || t != wire.FrameRequest || json.Unmarshal(payload, &req) != nil || req.Op != wire.OpAccepted ||
		json.Unmarshal(req.Body, &acc) != nil || l.accepted == nil {
		_ = conn.Close()
		return
	}
	l.accepted(acc.Session, acc.Name, conn)
}

// proxyConn is a connection accepted inside the box.
type proxyConn struct{ *yamux.Stream }

var _ net.Conn = (*proxyConn)(nil)

// CloseWrite ends this side's bytes; the other side's still come.
func (c *proxyConn) CloseWrite() error { return c.Stream.Close() }

// Close ends the bytes of both sides.
func (c *proxyConn) Close() error {
	err := c.Stream.Close()
	_ = c.SetDeadline(past)
	return err
}
