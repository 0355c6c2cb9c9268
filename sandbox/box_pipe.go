package sandbox

import (
	"context"
	"encoding/json"
	"net"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// releaseMost is how many calls one request releases.
const releaseMost = 250

// releaseLoop sends releases, and ends streams, that no request took along, until
// the pipe ends.
func (b *Box) releaseLoop() {
	ctx, cancel := context.WithCancel(boxContext{b})
	defer cancel()
	for {
		select {
		case <-b.release:
		case <-b.Done():
			return
		}
		t := time.NewTimer(releaseDelay)
		select {
		case <-t.C:
		case <-b.Done():
			t.Stop()
			return
		}
		for b.unreleased() {
			if _, err := query[wire.Empty](ctx, b, wire.OpRelease, wire.Empty{}); err != nil {
				break // a stale or broken pipe: the next hello shows what is held
			}
		}
		b.endStreams(false)
	}
}

// ended leaves an answered stream to be ended with the next request: its end tells
// boxd nothing, and would wake it.
func (b *Box) ended(stream *yamux.Stream) {
	b.mu.Lock()
	b.over = append(b.over, stream)
	b.mu.Unlock()
	select {
	case b.release <- struct{}{}:
	default:
	}
}

// endStreams ends the answered streams; request says that one follows.
func (b *Box) endStreams(request bool) {
	b.mu.Lock()
	over := b.over
	b.over = nil
	b.mu.Unlock()
	if request && len(over) > 0 {
		ids := make([]uint32, len(over))
		for i, stream := range over {
			ids[i] = stream.StreamID()
		}
		b.mux.Ends(ids)
	}
	for _, stream := range over {
		_ = stream.Close()
	}
}

func (b *Box) unreleased() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.releases) > 0
}

// unsentReleases takes as many gathered releases as a request may carry.
func (b *Box) unsentReleases() []wire.Released {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.releases), releaseMost)
	out := b.releases[:n:n]
	if b.releases = b.releases[n:]; len(b.releases) == 0 {
		b.releases = nil
	}
	return out
}

// boxContext ends with the pipe.
type boxContext struct{ b *Box }

func (boxContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c boxContext) Done() <-chan struct{}     { return c.b.Done() }
func (boxContext) Value(any) any               { return nil }

// Err is ErrLost after the pipe ended.
func (c boxContext) Err() error {
	select {
	case <-c.b.Done():
		return ErrLost
	default:
		return nil
	}
}

// accept serves the streams that boxd opens: accepted proxy connections.
func (b *Box) accept() {
	for {
		stream, err := b.streams.AcceptStream()
		if err != nil {
			_ = b.streams.Close()
			return
		}
		go b.serveAccepted(stream)
	}
}

func (b *Box) serveAccepted(stream *yamux.Stream) {
	conn := &proxyConn{Stream: stream}
	t, payload, err := wire.ReadFrame(stream)
	var req wire.Request
	var acc wire.AcceptedRequest
	if err != nil || t != wire.FrameRequest || json.Unmarshal(payload, &req) != nil || req.Op != wire.OpAccepted ||
		json.Unmarshal(req.Body, &acc) != nil || b.accepted == nil {
		_ = conn.Close()
		return
	}
	b.accepted(acc.Session, acc.Name, conn)
}

// proxyConn is a connection accepted inside the box.
type proxyConn struct{ *yamux.Stream }

var _ net.Conn = (*proxyConn)(nil)

// CloseWrite ends this side's bytes; the other side's still come.
func (c *proxyConn) CloseWrite() error { return c.Stream.Close() }

// Close ends both sides.
func (c *proxyConn) Close() error {
	err := c.Stream.Close()
	_ = c.SetDeadline(past)
	return err
}
