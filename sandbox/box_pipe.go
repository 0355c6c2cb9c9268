package sandbox

import (
	"context"
	"encoding/json"
	"net"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// releaseMost is how many calls one request to boxd may release.
const releaseMost = 250

// releaseLoop runs until the connection ends. It sends the gathered releases, and closes the answered streams,
// once no other request has taken them along for releaseDelay. None of them waits longer than twice releaseDelay.
func (l *link) releaseLoop() {
	ctx, cancel := context.WithCancel(linkContext{l})
	defer cancel()
	for {
		select {
		case <-l.release:
		case <-l.done():
			return
		}
		for before := int64(-1); before != l.requests.Load(); {
			before = l.requests.Load()
			t := time.NewTimer(releaseDelay)
			select {
			case <-t.C:
			case <-l.done():
				t.Stop()
				return
			}
		}
		for l.unreleased() {
			if _, err := query[wire.Empty](ctx, &Box{link: l}, wire.OpRelease, wire.Empty{}); err != nil {
				break // the connection broke: the next Welcome lists the calls that boxd still holds
			}
		}
		l.endStreams(false)
	}
}

// gather calls add, which adds calls to release or answered streams to close. The next request takes
// them to boxd; if none follows, releaseLoop does it after releaseDelay: closing a stream at once would
// only wake boxd.
func (l *link) gather(add func(*link)) {
	l.mu.Lock()
	add(l)
	l.mu.Unlock()
	select {
	case l.release <- struct{}{}:
	default:
	}
}

// endStreams closes the answered streams. request is true if a request follows immediately, so
// that the closing frames can be sent together with it.
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

// unsentReleases removes from the gathered releases as many as one request may carry, and
// returns them.
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

// linkContext is a context that ends when the connection to boxd ends.
type linkContext struct{ l *link }

func (linkContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c linkContext) Done() <-chan struct{}     { return c.l.done() }
func (linkContext) Value(any) any               { return nil }

// Err returns ErrLost after the connection ended, else nil.
func (c linkContext) Err() error {
	select {
	case <-c.l.done():
		return ErrLost
	default:
		return nil
	}
}

// accept serves the streams that boxd opens. Each carries a connection that one of boxd's proxy
// listeners accepted.
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

// proxyConn is a connection that a proxy listener inside the box accepted.
type proxyConn struct{ *yamux.Stream }

var _ net.Conn = (*proxyConn)(nil)

// CloseWrite ends the data sent to the box; data from the box can still be read.
func (c *proxyConn) CloseWrite() error { return c.Stream.Close() }

// Close closes the connection in both directions.
func (c *proxyConn) Close() error {
	err := c.Stream.Close()
	_ = c.SetDeadline(past)
	return err
}
