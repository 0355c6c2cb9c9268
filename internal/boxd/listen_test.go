//go:build linux

package boxd_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// echo answers everything it got, when the other side has ended.
func echo(_ holdfast.SessionID, name string, conn net.Conn) {
	defer conn.Close()
	b, _ := io.ReadAll(conn)
	_, _ = fmt.Fprintf(conn, "%s:%s", name, b)
	_ = conn.(interface{ CloseWrite() error }).CloseWrite()
}

func (b *box) dialHandler(token uint64, h sandbox.Handler) *sandbox.Box {
	b.t.Helper()
	c, err := sandbox.Dial(b.t.Context(), "w-test", b.pipe(), token, h)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	return c
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

type halfConn interface {
	net.Conn
	CloseWrite() error
}

func ask(network, address, what string) (string, error) {
	conn, err := net.Dial(network, address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, what); err != nil {
		return "", err
	}
	if err := conn.(halfConn).CloseWrite(); err != nil {
		return "", err
	}
	b, err := io.ReadAll(conn)
	return string(b), err
}

func TestProxyConnectionsReachTheServer(t *testing.T) {
	b := startBox(t)
	c := b.dialHandler(1, echo)
	tcp := wire.ListenRequest{Name: "egress", Network: "tcp", Address: freePort(t)}
	unix := wire.ListenRequest{Name: "model", Network: "unix", Address: filepath.Join(t.TempDir(), "model.sock")}
	for _, req := range []wire.ListenRequest{tcp, unix, tcp, unix} { // again is fine
		if _, err := c.Listen(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	if fi, err := os.Stat(unix.Address); err != nil || fi.Mode().Perm() != 0o666 {
		t.Errorf("%v %v", fi, err)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			req := []wire.ListenRequest{tcp, unix}[i%2]
			what := fmt.Sprint("hello ", i)
			if got, err := ask(req.Network, req.Address, what); err != nil || got != req.Name+":"+what {
				t.Errorf("%q %v", got, err)
			}
		})
	}
	wg.Wait()
}

// TestHZ12_ProxyConnectionsWaitForAServer: a connection made while no server
// is attached is held, and served by the next.
func TestHZ12_ProxyConnectionsWaitForAServer(t *testing.T) {
	b := startBox(t)
	c := b.dialHandler(1, echo)
	req := wire.ListenRequest{Name: "model", Network: "unix", Address: filepath.Join(t.TempDir(), "s")}
	if _, err := c.Listen(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	got := make(chan string, 1)
	go func() {
		s, err := ask(req.Network, req.Address, "patience")
		got <- fmt.Sprint(s, err)
	}()
	select {
	case s := <-got:
		t.Fatalf("answered by nobody: %q", s)
	case <-time.After(100 * time.Millisecond):
	}
	b.dialHandler(2, echo)
	select {
	case s := <-got:
		if s != "model:patience<nil>" {
			t.Error(s)
		}
	case <-time.After(30 * time.Second):
		t.Error("never answered")
	}
}

// TestConnectionsOfOneSessionDelayNoOther: a session that has as many connections as it may have takes none of another one's.
func TestConnectionsOfOneSessionDelayNoOther(t *testing.T) {
	b := startBox(t)
	many, one := holdfast.SessionID("s-many"), holdfast.SessionID("s-one")
	arrived := make(chan struct{})
	c := b.dialHandler(1, func(session holdfast.SessionID, name string, conn net.Conn) {
		if session == one {
			echo(session, name, conn)
			return
		}
		defer conn.Close()
		arrived <- struct{}{}
		_, _ = io.Copy(io.Discard, conn) // until the test closes its end
	})
	address := map[holdfast.SessionID]string{}
	for _, s := range []holdfast.SessionID{many, one} {
		ans, err := c.Of(s).Listen(t.Context(), wire.ListenRequest{Name: "egress", Network: "tcp", Address: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		address[s] = ans
	}
	const most = 256
	var open []net.Conn
	for range most + 1 { // one more, which stays in the backlog
		conn, err := net.Dial("tcp", address[many])
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		open = append(open, conn)
	}
	for range most {
		<-arrived
	}
	if got, err := ask("tcp", address[one], "hello"); err != nil || got != "egress:hello" {
		t.Errorf("the other session's connection: %q %v", got, err)
	}
	select {
	case <-arrived:
		t.Errorf("more than %d connections of one session were carried", most)
	default:
	}
	_ = open[0].Close()
	<-arrived // the one that waited
}

func TestListenRefusals(t *testing.T) {
	b := startBox(t)
	c := b.dialHandler(1, nil)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write(t, file, "precious")
	if _, err := c.Listen(t.Context(), wire.ListenRequest{Name: "a", Network: "unix", Address: filepath.Join(dir, "s")}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		req  wire.ListenRequest
		kind holdfast.Kind
	}{
		{wire.ListenRequest{Network: "unix", Address: filepath.Join(dir, "t")}, holdfast.KindInvalid},
		{wire.ListenRequest{Name: "b", Network: "udp", Address: "127.0.0.1:0"}, holdfast.KindInvalid},
		{wire.ListenRequest{Name: "b", Network: "tcp", Address: "0.0.0.0:0"}, holdfast.KindInvalid},
		{wire.ListenRequest{Name: "b", Network: "tcp", Address: "localhost:80"}, holdfast.KindInvalid},
		{wire.ListenRequest{Name: "b", Network: "tcp", Address: "127.0.0.1"}, holdfast.KindInvalid},
		{wire.ListenRequest{Name: "b", Network: "unix", Address: file}, holdfast.KindConflict},
		{wire.ListenRequest{Name: "a", Network: "unix", Address: filepath.Join(dir, "other")}, holdfast.KindConflict},
		{wire.ListenRequest{Name: "b", Network: "unix", Address: "/no/such/dir/s"}, holdfast.KindUnavailable},
	} {
		if _, err := c.Listen(t.Context(), tc.req); holdfast.KindOf(err) != tc.kind {
			t.Errorf("%+v: %v", tc.req, err)
		}
	}
	if read(t, file) != "precious" {
		t.Error("a file was replaced by a socket")
	}
	// A server without a handler turns connections away, and does not keep them.
	if got, err := ask("unix", filepath.Join(dir, "s"), "x"); err == nil && got != "" {
		t.Errorf("%q %v", got, err)
	}
	// A socket that a former life left is replaced.
	b.srv.Stop(0, "")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "left"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	_ = left.Close()
	n := startOn(t, b.cfg).dialHandler(1, echo)
	if _, err := n.Listen(t.Context(), wire.ListenRequest{Name: "l", Network: "unix", Address: filepath.Join(dir, "left")}); err != nil {
		t.Error(err)
	}
}
