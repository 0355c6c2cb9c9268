package boxd

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/paths"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// maxLinks is how many connections to the listeners of one session boxd has accepted at once at most.
// More connections wait in the kernel until one of these ends.
const maxLinks = 256

// listeners are the proxy listeners in the box. Processes of the box connect to a listener, and boxd
// forwards the connection to the server. If no server is connected, the connection waits for one.
type listeners struct {
	s *Server

	mu sync.Mutex
	// slots has a channel of maxLinks places for each session. Each accepted connection takes a place.
	slots map[holdfast.SessionID]chan struct{}
	// open has the listeners. A key (listener name and session) is also the message that announces a connection.
	open map[wire.AcceptedRequest]*proxy
	peer *peer
	// came is closed, and replaced by a new channel, when a server connects.
	came   chan struct{}
	conns  map[net.Conn]struct{}
	closed bool
}

type proxy struct {
	req wire.ListenRequest
	l   net.Listener
}

func (ls *listeners) init(s *Server) {
	ls.s = s
	ls.slots = map[holdfast.SessionID]chan struct{}{}
	ls.open = map[wire.AcceptedRequest]*proxy{}
	ls.conns = map[net.Conn]struct{}{}
	ls.came = make(chan struct{})
}

func (ls *listeners) attach(p *peer) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.peer == nil || p.token >= ls.peer.token {
		ls.peer = p
		close(ls.came)
		ls.came = make(chan struct{})
	}
}

func (ls *listeners) detach(p *peer) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.peer == p {
		ls.peer = nil
	}
}

// listen opens a listener for a session, and returns its address. If the session has the same listener already, listen
// returns the address of this one: a new server does not know which listeners a former server has opened.
func (ls *listeners) listen(session holdfast.SessionID, req wire.ListenRequest) (_ wire.ListenAnswer, err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	bad := func(kind holdfast.Kind, format string, args ...any) (wire.ListenAnswer, error) {
		return wire.ListenAnswer{}, holdfast.Errorf(kind, "boxd listen", format, args...)
	}
	if ls.closed {
		return bad(holdfast.KindUnavailable, "no listener can be opened: the box is stopping")
	}
	if req.Name == "" {
		return bad(holdfast.KindInvalid, "a listener in the box needs a name")
	}
	id := wire.AcceptedRequest{Name: req.Name, Session: session}
	if p := ls.open[id]; p != nil {
		if p.req != req {
			return bad(holdfast.KindConflict, "the listener %s is open already, on %s", holdfast.Quote(req.Name), holdfast.Quote(p.req.Address))
		}
		return wire.ListenAnswer{Address: p.l.Addr().String()}, nil
	}
	for other, p := range ls.open {
		// Unix sockets are checked too, because a new listener replaces the socket file of another one at
		// its path. They are not checked in a shared box, where each session has files of its own.
		apart := ls.s.members.shared && req.Network == "unix"
		if !apart && p.req.Network == req.Network && p.l.Addr().String() == req.Address && other.Session != session {
			return bad(holdfast.KindConflict, "another session of the box listens on %s already", holdfast.Quote(req.Address))
		}
	}
	m, err := ls.s.members.hold(session)
	if err != nil {
		return wire.ListenAnswer{}, err
	}
	defer m.done()
	var l net.Listener
	if m != nil {
		err = m.place.Own(func() (err error) { l, err = listen(req); return err })
	} else {
		l, err = listen(req)
	}
	if err != nil {
		return wire.ListenAnswer{}, err
	}
	slots := ls.slots[session]
	if slots == nil {
		slots = make(chan struct{}, maxLinks)
		ls.slots[session] = slots
	}
	ls.open[id] = &proxy{req: req, l: l}
	ls.s.wg.Go(func() { ls.accept(id, l, slots) })
	return wire.ListenAnswer{Address: l.Addr().String()}, nil
}

func listen(req wire.ListenRequest) (net.Listener, error) {
	bad := func(kind holdfast.Kind, format string, args ...any) error {
		return holdfast.Errorf(kind, "boxd listen", format, args...)
	}
	switch req.Network {
	case "tcp":
		host, _, err := net.SplitHostPort(req.Address)
		ip := net.ParseIP(host)
		if err != nil || ip == nil || !ip.IsLoopback() {
			return nil, bad(holdfast.KindInvalid, "the listener's address %s is not a loopback address and port", holdfast.Quote(req.Address))
		}
	case "unix":
		if err := makeRoom(req.Address); err != nil {
			return nil, err
		}
	default:
		return nil, bad(holdfast.KindInvalid, "the listener's network %s is neither tcp nor unix", holdfast.Quote(req.Network))
	}
	l, err := listenPlain(req)
	if err != nil {
		return nil, bad(holdfast.KindUnavailable, "cannot listen on %s: %w", holdfast.Quote(req.Address), err)
	}
	if req.Network == "unix" {
		// Tools can have another uid than boxd. The permissions of the directory decide which tools reach the socket.
		if err := openToAll(req.Address); err != nil {
			_ = l.Close()
			return nil, bad(holdfast.KindUnavailable, "cannot make the socket %s writable for tools: %w", holdfast.Quote(req.Address), err)
		}
	}
	return l, nil
}

// makeRoom removes the socket file that a former listener has left at address. A file of another type is an error.
func makeRoom(address string) error {
	above, name := paths.Split(address)
	dir, err := paths.Open(above, paths.Way|unix.O_DIRECTORY)
	if err != nil {
		return nil // opening the listener fails for the same reason, and returns the error
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil
	}
	if uint32(st.Mode)&unix.S_IFMT != unix.S_IFSOCK {
		return holdfast.Errorf(holdfast.KindConflict, "boxd listen", "cannot listen on %s: the path exists and is not a socket", holdfast.Quote(address))
	}
	_ = unix.Unlinkat(dir, name, 0)
	return nil
}

// openToAll gives a socket file the mode 0666, so that every user can connect. If a tool has replaced the
// socket by a symlink or another file, it returns an error.
func openToAll(address string) error {
	above, name := paths.Split(address)
	dir, err := paths.Open(above, paths.Way|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	fd, err := paths.At(dir, name, paths.Way, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if uint32(st.Mode)&unix.S_IFMT != unix.S_IFSOCK {
		return unix.ENOTSOCK
	}
	return paths.Chmod(fd, 0o666)
}

// listenPlain opens a listener. It does not use multipath TCP, which the seccomp filter of the box refuses.
func listenPlain(req wire.ListenRequest) (net.Listener, error) {
	if req.Network == "unix" {
		return net.ListenUnix("unix", &net.UnixAddr{Name: req.Address, Net: "unix"})
	}
	addr, err := net.ResolveTCPAddr("tcp", req.Address)
	if err != nil {
		return nil, err
	}
	return net.ListenTCP("tcp", addr)
}

func (ls *listeners) accept(of wire.AcceptedRequest, l net.Listener, slots chan struct{}) {
	for {
		select {
		case slots <- struct{}{}:
		case <-ls.s.stopped:
			return
		}
		conn, err := l.Accept()
		if err != nil {
			<-slots
			if errors.Is(err, net.ErrClosed) {
				return
			}
			select {
			case <-time.After(10 * time.Millisecond):
				continue
			case <-ls.s.stopped:
				return
			}
		}
		if !ls.track(conn, true) {
			<-slots
			_ = conn.Close()
			return
		}
		ls.s.wg.Go(func() {
			ls.carry(of, conn)
			ls.track(conn, false)
			<-slots
		})
	}
}

func (ls *listeners) track(conn net.Conn, add bool) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if !add {
		delete(ls.conns, conn)
		return true
	}
	if !ls.closed {
		ls.conns[conn] = struct{}{}
	}
	return !ls.closed
}

// carry copies data between a connection from the box and the server that is connected, or the next one that connects.
func (ls *listeners) carry(of wire.AcceptedRequest, conn net.Conn) {
	defer conn.Close()
	var stream *yamux.Stream
	for stream == nil {
		p := ls.wait()
		if p == nil {
			return
		}
		stream = announce(p, of)
	}
	defer stream.Close()
	up := make(chan struct{})
	go func() {
		defer close(up)
		_, _ = io.Copy(stream, conn)
		_ = stream.Close() // closes only the direction from the box to the server
	}()
	_, _ = io.Copy(conn, stream)
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
	<-up
}

// wait returns the connection of the server, and waits until there is one. It returns nil if the box stops.
func (ls *listeners) wait() *peer {
	for {
		ls.mu.Lock()
		p, came, closed := ls.peer, ls.came, ls.closed
		ls.mu.Unlock()
		switch {
		case closed:
			return nil
		case p != nil:
			return p
		}
		select {
		case <-came:
		case <-ls.s.stopped:
			return nil
		}
	}
}

// announce opens a stream to the server for a connection from the box. If that fails, it closes p and returns nil.
func announce(p *peer, of wire.AcceptedRequest) *yamux.Stream {
	b, err := json.Marshal(of)
	if err != nil {
		return nil
	}
	stream, err := p.session.OpenStream()
	if err != nil {
		p.close()
		return nil
	}
	buf, err := wire.AppendJSON(nil, wire.FrameRequest, wire.Request{Op: wire.OpAccepted, Body: b})
	if err == nil {
		_, err = stream.Write(buf)
	}
	if err != nil {
		_ = stream.Close()
		p.close()
		return nil
	}
	return stream
}

// closeOf closes the listeners of a session. Connections that they have accepted stay open.
func (ls *listeners) closeOf(session holdfast.SessionID) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for id, p := range ls.open {
		if id.Session == session {
			_ = p.l.Close()
			delete(ls.open, id)
		}
	}
	delete(ls.slots, session)
}

// close closes all listeners, and all connections that they have accepted.
func (ls *listeners) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	for _, p := range ls.open {
		_ = p.l.Close()
	}
	for c := range ls.conns {
		_ = c.Close()
	}
}
