package torture

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Points names the kill points of a turn, in order: after the commit of a call's intent; after
// its process exists; while it runs; after its end, before the commit of its outcome; after that
// commit, before the server lets the box release the call.
var Points = []string{"intent", "spawned", "running", "finished-uncommitted", "committed-unreleased"}

// SnapshotPoints names the kill points of snapshots, rewinds and restores: after the files were read;
// after the packs and their names are on the disk; after the commit of the checkpoint; after the commit of
// a rewind, before its files; before files are replaced; after the rename of a restored tree; after the
// replacement, before its commit.
var SnapshotPoints = []string{"scanned", "packed", "committed", "rewound", "restoring", "renamed", "restored"}

// Report returns the server's side of a kill point: it tells the harness at socket that a session
// reached a point, and waits until the harness lets it continue. Without a harness it continues
// at once.
func Report(socket string) func(session holdfast.SessionID, point string) {
	return func(session holdfast.SessionID, point string) {
		conn, err := net.DialTimeout("unix", socket, time.Second)
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, "%s %s\n", session, point); err != nil {
			return
		}
		_, _ = io.ReadFull(conn, make([]byte, 1))
	}
}

// hit is a session that waits at a kill point. Its receiver must call pass.
type hit struct {
	session holdfast.SessionID
	point   string
	conn    net.Conn
}

// pass lets the session continue.
func (h hit) pass() {
	_, _ = h.conn.Write([]byte{1})
	_ = h.conn.Close()
}

// points is the harness's side of the kill points.
type points struct {
	ln   net.Listener
	done sync.WaitGroup

	mu    sync.Mutex
	armed string
	taken chan hit
}

func listenPoints(socket string) (*points, error) {
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	p := &points{ln: ln}
	p.done.Go(p.accept)
	return p, nil
}

// arm makes the next session that reaches the point wait there; the channel receives the hit.
func (p *points) arm(point string) <-chan hit {
	ch := make(chan hit, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.taken = point, ch
	return ch
}

// wanted returns the point at which the next kill is to happen, or "" if no such kill is planned.
func (p *points) wanted() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.armed
}

// disarm undoes arm. A session that already waits is released.
func (p *points) disarm() {
	p.mu.Lock()
	ch := p.taken
	p.armed, p.taken = "", nil
	p.mu.Unlock()
	select {
	case h := <-ch:
		h.pass()
	default:
	}
}

func (p *points) accept() {
	for {
		conn, err := p.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			p.done.Go(func() { p.serve(conn) })
		}
	}
}

func (p *points) serve(conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		_ = conn.Close()
		return
	}
	session, point, _ := strings.Cut(strings.TrimSpace(line), " ")
	h := hit{session: holdfast.SessionID(session), point: point, conn: conn}
	p.mu.Lock()
	if p.armed == point && p.taken != nil {
		p.taken <- h
		p.armed, p.taken = "", nil
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	h.pass()
}

func (p *points) close() {
	_ = p.ln.Close()
	p.disarm()
	p.done.Wait()
}
