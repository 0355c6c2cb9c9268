package boxd

import (
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// markShift is the number of low bits of a mark (StartSpec.Mark) that are the number of the call. In a
// shared box the bits above them are the number of the session's member.
const markShift = 32

// members are the sessions that have a place in a shared box.
type members struct {
	s      *Server
	shared bool

	// joining is held while a place is made, which takes long if the home of the session is large.
	joining sync.Mutex

	mu   sync.Mutex
	last uint64 // the number of the newest member
	of   map[holdfast.SessionID]*member
}

// member is a session that has a place in a shared box. Code that uses its place first calls hold and afterwards done.
type member struct {
	place Place
	n     uint64
	// leaving is true once the session leaves. use counts the calls of hold without a done.
	leaving bool
	use     sync.WaitGroup
	gone    chan struct{}
}

func (m *member) done() {
	if m != nil {
		m.use.Done()
	}
}

// hold returns the member of the session that made a request; the caller must call done on it. The member
// is nil if the box is not shared, or if session is empty because the server itself made the request.
func (ms *members) hold(session holdfast.SessionID) (*member, error) {
	if !ms.shared || session == "" {
		return nil, nil
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m := ms.of[session]
	if m == nil || m.leaving {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxd", "session %s has not joined this shared box, or is leaving it", holdfast.Quote(string(session))).
			WithHint("the server must let the session join after each start of the box")
	}
	m.use.Add(1)
	return m, nil
}

// do runs fn, a file operation of a session, with the rights of a tool; fn sees the files of the session.
func (ms *members) do(session holdfast.SessionID, fn func() error) error {
	m, err := ms.hold(session)
	if err != nil {
		return err
	}
	if m == nil {
		return ms.s.do(fn)
	}
	defer m.done()
	return guarded(m.place.Do, fn)
}

// doOf returns a function that runs its argument with do, for the session of a request.
func (ms *members) doOf(req wire.Request) func(func() error) error {
	return func(fn func() error) error { return ms.do(req.Session, fn) }
}

// join makes the place of a session. If the session has one, join does nothing.
func (ms *members) join(session holdfast.SessionID, mounts []*os.File) error {
	sharer, ok := ms.s.cfg.Hands.(Sharer)
	if !ok || !ms.shared {
		return holdfast.Errorf(holdfast.KindInvalid, "boxd join", "session %s cannot join: the box was not started for several sessions", holdfast.Quote(string(session)))
	}
	ms.joining.Lock()
	defer ms.joining.Unlock()
	if has, err := ms.has(session); has || err != nil {
		return err
	}
	place, err := sharer.Join(mounts)
	if err != nil {
		return err
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.last++
	ms.of[session] = &member{place: place, n: ms.last, gone: make(chan struct{})}
	return nil
}

// has reports whether a session has a place. While the session leaves the box, it returns a busy error.
func (ms *members) has(session holdfast.SessionID) (bool, error) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m := ms.of[session]
	if m != nil && m.leaving {
		return false, holdfast.Errorf(holdfast.KindBusy, "boxd join", "session %s is leaving the box", holdfast.Quote(string(session))).
			WithHint("try again in a moment")
	}
	return m != nil, nil
}

// serveJoin serves a connection whose hello lets a session join a shared box: it makes a place and sends the result.
func (ms *members) serveJoin(conn net.Conn, h wire.Hello) {
	err := ms.admit(conn, h)
	w := wire.Welcome{Version: wire.Version, Boot: ms.s.boot}
	if err != nil {
		w.Err = wire.AsError(err)
	}
	_ = wire.WriteJSON(conn, wire.FrameHello, w)
}

// admit receives the mounts of a join, checks the request, and makes the place of the session.
func (ms *members) admit(conn net.Conn, h wire.Hello) error {
	mounts, err := receiveFiles(conn)
	defer closeAll(mounts)
	if err != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "boxd join", "cannot receive the directories of the session that come with its join: %w", err)
	}
	id, err := holdfast.Parse[holdfast.SessionID](string(h.Join.Session))
	switch highest := ms.s.led.highest(); {
	case err == nil && id != h.Join.Session:
		err = holdfast.Errorf(holdfast.KindInvalid, "boxd join", "the session id %s is not in lower case", holdfast.Quote(string(h.Join.Session)))
	case err == nil && h.Version != wire.Version:
		err = holdfast.Errorf(holdfast.KindInvalid, "boxd join", "the server speaks protocol version %d, but this boxd speaks %d", h.Version, wire.Version)
	case err == nil && h.Token != highest:
		err = holdfast.Errorf(holdfast.KindConflict, "boxd join", "the fencing token %d of the join is not %d, the token of the connected server", h.Token, highest)
	}
	if err != nil {
		return err
	}
	return ms.join(id, mounts)
}

// receiveFiles reads one byte from the connection, and the one or two open files that come with the byte. The caller
// closes the returned files, also after an error.
func receiveFiles(conn net.Conn) (files []*os.File, err error) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, syscall.ENOTSUP
	}
	oob := make([]byte, syscall.CmsgSpace(4*8))
	_, n, _, _, err := c.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return nil, err
	}
	messages, err := syscall.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, _ := syscall.ParseUnixRights(&m)
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "mount"))
		}
	}
	if len(files) < 1 || len(files) > 2 {
		err = syscall.EBADMSG
	}
	return files, err
}

// placeEnder is an optional interface of Hands, for the end of a place.
type placeEnder interface {
	// EndWhere ends the processes of all calls whose marks satisfy belongs: with SIGTERM, and after grace with SIGKILL.
	EndWhere(belongs func(mark uint64) bool, grace time.Duration)
}

// serveLeave ends the part of a session in a shared box: its processes, its listeners and its place. It
// returns when they are gone. If the session has no place, it does nothing.
func (ms *members) serveLeave(p *peer, session holdfast.SessionID, req wire.LeaveRequest) error {
	s := ms.s
	if session == "" {
		return holdfast.Errorf(holdfast.KindInvalid, "boxd leave", "the leave request names no session")
	}
	var m *member
	first := false
	err := s.led.guard(p, func() {
		ms.mu.Lock()
		defer ms.mu.Unlock()
		if m = ms.of[session]; m != nil {
			first, m.leaving = !m.leaving, true
		}
	})
	if err != nil || m == nil {
		return err
	}
	if !first {
		select {
		case <-m.gone:
		case <-p.done:
		}
		return nil
	}
	detail := "the session left the box"
	if req.Reason != "" {
		detail += ": " + req.Reason
	}
	grace := millis(req.GraceMS)
	m.use.Wait() // requests of the session that came before have started their processes when this returns
	var wg sync.WaitGroup
	var running []*call
	for _, c := range s.led.held() {
		if c.session == session && c.exec != nil && !c.finished() && c.exec.beginKill(endStopped, detail) {
			running = append(running, c)
			wg.Go(func() { s.killSoftly(c.exec, grace) })
		}
	}
	if e, ok := s.cfg.Hands.(placeEnder); ok {
		e.EndWhere(func(mark uint64) bool { return mark>>markShift == m.n }, grace)
	}
	wg.Wait()
	s.links.closeOf(session)
	m.place.End()
	for _, c := range running {
		select {
		case <-c.done:
		case <-s.stopped:
		}
	}
	ms.mu.Lock()
	delete(ms.of, session)
	ms.mu.Unlock()
	close(m.gone)
	return nil
}
