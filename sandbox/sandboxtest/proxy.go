package sandboxtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// proxyCases test the network access of a box: boxd listens inside, and passes the accepted
// connections to the server.
func proxyCases() []testCase {
	return []testCase{
		{name: "Proxy/ConnectionReachesTheServer", run: proxyReaches},
		{name: "Proxy/HZ12_ConnectionWaitsForTheNextServer", run: proxyWaits},
	}
}

// answering returns a Handler that answers one line with the names of the server and the listener, and that line.
func answering(server string) sandbox.Handler {
	return func(_ holdfast.SessionID, name string, conn net.Conn) {
		defer conn.Close()
		line, _ := bufio.NewReader(conn).ReadString('\n')
		_, _ = fmt.Fprintf(conn, "%s of %s heard %s", server, name, line)
	}
}

func (f *fixture) dialHandler(id holdfast.BoxID, token uint64, h sandbox.Handler) *sandbox.Box {
	f.Helper()
	conn, err := f.d.Connect(f.ctx, id)
	f.must(err)
	b, err := sandbox.Dial(f.ctx, id, conn, token, h)
	f.must(err)
	f.open = append(f.open, b)
	return b
}

// egress returns the request for a listener in the box, on a port that is free on this machine, because the driver may
// share the machine's network with the box.
func (f *fixture) egress() (req wire.ListenRequest, port int) {
	f.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	f.must(err)
	f.must(l.Close())
	port = l.Addr().(*net.TCPAddr).Port
	return wire.ListenRequest{Name: "egress", Network: "tcp", Address: l.Addr().String()}, port
}

// client starts a process in the box that waits for the file go, connects, creates the file
// connected, sends hello and writes the answer to the file heard. If the driver has no real
// programs, a goroutine of the test does this instead.
func (f *fixture) client(b *sandbox.Box, ws string, port int) {
	f.Helper()
	if f.cfg.RealPrograms {
		g := f.begin(b, f.call(), wire.ExecRequest{Argv: []string{"bash", "-c", fmt.Sprintf(
			`until [ -e go ]; do sleep 0.02; done; exec 3<>/dev/tcp/127.0.0.1/%d; : > connected; echo hello >&3; cat <&3 > heard.part; mv heard.part heard`, port)}})
		f.await("the start", g.started)
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for !exists(ws, "go") && f.ctx.Err() == nil {
			<-tick.C
		}
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return
		}
		defer conn.Close()
		_ = os.WriteFile(filepath.Join(ws, "connected"), nil, 0o666)
		_, _ = io.WriteString(conn, "hello\n")
		heard, _ := io.ReadAll(conn)
		_ = os.WriteFile(filepath.Join(ws, "heard.part"), heard, 0o666)
		_ = os.Rename(filepath.Join(ws, "heard.part"), filepath.Join(ws, "heard"))
	}()
	f.Cleanup(func() { f.cancel(); <-done })
}

func exists(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

func (f *fixture) heard(ws string) string {
	f.Helper()
	f.eventually("an answer", func() bool { return exists(ws, "heard") })
	b, err := os.ReadFile(filepath.Join(ws, "heard"))
	f.must(err)
	return string(b)
}

func proxyReaches(f *fixture) {
	spec := f.up("a")
	ws := workspaceOf(spec)
	b := f.dialHandler(spec.Box, 1, answering("first"))
	req, port := f.egress()
	f.listen(b, req)
	f.listen(b, req)
	f.client(b, ws, port)
	f.must(os.WriteFile(filepath.Join(ws, "go"), nil, 0o666))
	f.equal("the answer", f.heard(ws), "first of egress heard hello\n")
}

// proxyWaits tests that a connection made while no server is connected waits for the next server.
func proxyWaits(f *fixture) {
	spec := f.up("a")
	ws := workspaceOf(spec)
	b := f.dialHandler(spec.Box, 1, answering("first"))
	req, port := f.egress()
	f.listen(b, req)
	f.client(b, ws, port)
	f.must(b.Close())
	f.must(os.WriteFile(filepath.Join(ws, "go"), nil, 0o666))
	f.eventually("a connection", func() bool { return exists(ws, "connected") })
	if exists(ws, "heard") {
		f.Fatal("nobody was there, and it was answered")
	}
	f.dialHandler(spec.Box, 2, answering("second"))
	f.equal("the answer", f.heard(ws), "second of egress heard hello\n")
}
