package boxd

import (
	"encoding/json"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// welcomeCalls is how many held calls a Welcome lists at most. The answer of OpCalls lists all of them.
const welcomeCalls = 1000

// peer is a connection of a server. Its hello message was accepted, because its protocol version and its
// fencing token are valid; this does not authenticate the server.
type peer struct {
	token uint64
	conn  net.Conn
	// done is closed when the connection has ended or another one has replaced it.
	done    chan struct{}
	once    sync.Once
	session *yamux.Session
	mux     *wire.Coalesced
	census  census
}

func (p *peer) close() {
	p.once.Do(func() {
		close(p.done)
		_ = p.conn.Close()
	})
}

// muxConfig has no keepalive, because the other side may be stopped or frozen and go on later (HZ-10). Its
// timeouts are off or a year long: the next accepted hello closes the connection of a server that does not read.
func muxConfig() *yamux.Config {
	cfg := yamux.DefaultConfig()
	cfg.EnableKeepAlive = false
	cfg.ConnectionWriteTimeout = 365 * 24 * time.Hour
	cfg.StreamOpenTimeout = 0
	cfg.StreamCloseTimeout = 0
	cfg.LogOutput = io.Discard
	return cfg
}

func (s *Server) serveConn(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(helloWait))
	t, payload, err := wire.ReadFrame(conn)
	if err != nil {
		return
	}
	h, ok := helloOf(t, payload)
	if h.Join != nil {
		s.members.serveJoin(conn, h)
		return
	}
	p, welcome, err := s.hello(conn, h, ok)
	if err != nil {
		refusal := wire.Welcome{Version: wire.Version, Err: wire.AsError(err), Boot: s.boot, Token: s.led.highest()}
		_ = wire.WriteJSON(conn, wire.FrameHello, refusal)
		return
	}
	defer p.close()
	defer s.led.drop(p)
	if err := wire.WriteJSON(conn, wire.FrameHello, welcome); err != nil {
		return
	}
	_ = conn.SetDeadline(time.Time{})
	p.mux = wire.Coalesce(conn)
	session, err := yamux.Server(p.mux, muxConfig())
	if err != nil {
		return
	}
	defer session.Close()
	p.session = session
	s.links.attach(p)
	defer s.links.detach(p)
	for {
		stream, err := session.AcceptStream()
		if err != nil {
			return
		}
		s.wg.Go(func() { s.serveStream(p, stream) })
	}
}

// helloOf decodes the first frame of a connection; ok is false if it is not a hello.
func helloOf(t wire.FrameType, payload []byte) (h wire.Hello, ok bool) {
	ok = t == wire.FrameHello && json.Unmarshal(payload, &h) == nil
	return h, ok
}

// hello checks the first frame of a connection; ok is false if the frame is not a hello message. If hello accepts it,
// it saves the token, makes the connection the only one that may act, and closes the one before.
func (s *Server) hello(conn net.Conn, h wire.Hello, ok bool) (*peer, wire.Welcome, error) {
	if !ok {
		return nil, wire.Welcome{}, holdfast.Errorf(holdfast.KindInvalid, "boxd hello", "the first frame of the connection is not a hello message")
	}
	if h.Version != wire.Version {
		return nil, wire.Welcome{}, holdfast.Errorf(holdfast.KindInvalid, "boxd hello", "the server speaks protocol version %d, but this boxd speaks %d", h.Version, wire.Version).
			WithHint("stop the box, so that the next start uses this server's boxd")
	}
	if h.Token == 0 {
		return nil, wire.Welcome{}, holdfast.Errorf(holdfast.KindInvalid, "boxd hello", "the server's hello message has no fencing token")
	}
	s.helloMu.Lock()
	defer s.helloMu.Unlock()
	highest := s.led.highest()
	if h.Token < highest {
		return nil, wire.Welcome{}, holdfast.Errorf(holdfast.KindConflict, "boxd hello", "the fencing token %d is too old: the box has already seen the token %d", h.Token, highest).
			WithHint("another server controls this box now")
	}
	if h.Token > highest {
		if err := s.state.saveToken(h.Token); err != nil {
			return nil, wire.Welcome{}, holdfast.Errorf(holdfast.KindUnavailable, "boxd hello", "cannot save the fencing token: %w", err)
		}
	}
	p := &peer{token: h.Token, conn: conn, done: make(chan struct{})}
	before, calls := s.led.switchTo(p, h.Token)
	if before != nil {
		before.close()
	}
	w := wire.Welcome{
		Version: wire.Version, Boot: s.boot, Token: h.Token, Calls: calls,
		InForce: s.cfg.InForce, Missing: s.cfg.Missing, Gated: s.gate.isClosed(),
	}
	if len(w.Calls) > welcomeCalls {
		w.Calls, w.More = w.Calls[:welcomeCalls], true
	}
	return p, w, nil
}
