package egress_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/egress"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

var public = netip.MustParseAddr("93.184.215.14")

// world is the network that the proxy of a test sees.
type world struct {
	*testing.T
	p *egress.Proxy

	mu    sync.Mutex
	reach check.Reach
	// names resolve to what comes next of their list; the last stays.
	names  map[string][][]netip.Addr
	dialed []netip.AddrPort
	// looked is called during each lookup of a name.
	looked func(context.Context)
	// site is where a connection to a public address really ends.
	site   string
	events []seen
}

type seen struct {
	typ holdfast.EventType
	d   holdfast.EgressDecision
}

func newWorld(t *testing.T, site string, lists ...[]string) *world {
	t.Helper()
	w := &world{T: t, site: site, names: map[string][][]netip.Addr{}}
	w.grant(lists...)
	w.p = egress.NewProxy(context.WithoutCancel(t.Context()), egress.ProxyConfig{
		Sessions: w, Resolve: w.resolve, Dial: w.dial, MaxConnections: 4, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { _ = w.p.Close() })
	return w
}

func (w *world) grant(lists ...[]string) {
	w.Helper()
	var reach check.Reach
	for i, l := range lists {
		d, err := check.ParseDestinations(fmt.Sprintf("list %d", i), l)
		if err != nil {
			w.Fatal(err)
		}
		reach = append(reach, d)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reach = reach
}

func (w *world) Network(context.Context, holdfast.SessionID) (check.Reach, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reach, nil
}

func (w *world) RecordEgress(_ context.Context, _ holdfast.SessionID, typ holdfast.EventType, d holdfast.EgressDecision) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, seen{typ, d})
	return nil
}

func (w *world) recorded() []seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

func (w *world) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if w.looked != nil {
		w.looked(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.names[host]
	if len(next) == 0 {
		return nil, errors.New("no such host")
	}
	if len(next) > 1 {
		w.names[host] = next[1:]
	}
	return next[0], nil
}

func (w *world) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	w.dialed = append(w.dialed, to)
	w.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, "tcp", w.site)
}

// say sends raw bytes to the proxy and reads until it hangs up.
func (w *world) say(raw string) string {
	w.Helper()
	here, there := pipe(w.T)
	w.p.Serve(session, "", there)
	_ = here.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(here, raw); err != nil {
		w.Fatal(err)
	}
	out, err := io.ReadAll(here)
	if err != nil {
		w.Fatalf("%q: %v after %q", raw, err, out)
	}
	return string(out)
}

// pipe is a connection as boxd hands it over, and its other end.
func pipe(t *testing.T) (here, there net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if here, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if there, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = here.Close(); _ = there.Close() })
	return here, there
}

func site(t *testing.T) (*httptest.Server, chan *http.Request) {
	t.Helper()
	got := make(chan *http.Request, 16)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r
		w.Header().Set("Proxy-Authenticate", "Secret-Hop")
		_, _ = fmt.Fprintf(w, "%s %s with %q", r.Method, r.URL.Path, body)
	}))
	t.Cleanup(s.Close)
	return s, got
}

// TestHZ7_OnlyWhatEveryListGrantsIsReached.
func TestHZ7_OnlyWhatEveryListGrantsIsReached(t *testing.T) {
	s, _ := site(t)
	w := newWorld(t, s.Listener.Addr().String(), []string{"a.example", "*.b.example", "c.example:8443"}, []string{"*", "*:8443"})
	for _, name := range []string{"a.example", "x.b.example", "b.example", "c.example", "d.example"} {
		w.names[name] = [][]netip.Addr{{public}}
	}
	for _, tc := range []struct {
		to string
		ok bool
	}{
		{"http://a.example/", true},
		{"http://A.EXAMPLE./", true},
		{"http://x.b.example/", true},
		{"http://c.example:8443/", true},
		{"http://b.example/", false},
		{"http://c.example/", false},
		{"http://d.example/", false},
		{"http://a.example:22/", false},
		{"http://a.example:8443/", false},
		{"http://xa.example/", false},
		{"http://a.example.evil.example/", false},
	} {
		out := w.say("GET " + tc.to + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if ok := strings.HasPrefix(out, "HTTP/1.1 200"); ok != tc.ok {
			t.Errorf("%s: %q", tc.to, out)
		}
	}
	w.grant([]string{"a.example"}, []string{})
	if out := w.say("CONNECT a.example:443 HTTP/1.1\r\n\r\n"); !strings.HasPrefix(out, "HTTP/1.1 403") || !strings.Contains(out, "list 1") {
		t.Errorf("an empty list grants: %q", out)
	}
	w.grant()
	if out := w.say("CONNECT a.example:443 HTTP/1.1\r\n\r\n"); !strings.HasPrefix(out, "HTTP/1.1 403") {
		t.Errorf("no list grants: %q", out)
	}
}

// TestHZ7_AddressesAreRefusedInEveryForm: also where everything is granted.
func TestHZ7_AddressesAreRefusedInEveryForm(t *testing.T) {
	s, _ := site(t)
	w := newWorld(t, s.Listener.Addr().String(), []string{"*"})
	for _, host := range []string{
		"127.0.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "127.0.0.1.", "0", "1.2.3.4", "1.2.3.4.", "169.254.169.254",
		"[::1]", "[::ffff:127.0.0.1]", "[fe80::1%25eth0]", "[fe80::1%eth0]", "[::]", "[2001:4860:4860::8888]", "[::127.0.0.1]",
		"localhost", "metadata", "a", "*.example", "a..example", "-a.example", "a_.ex ample", "ex\u00e4mple.com", "a.example%00.b.example", "a.0x7f",
	} {
		w.names[strings.Trim(host, "[].")] = [][]netip.Addr{{public}}
		for _, req := range []string{"CONNECT " + host + ":443 HTTP/1.1\r\nHost: a.example\r\n\r\n", "GET http://" + host + "/ HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"} {
			if out := w.say(req); !strings.HasPrefix(out, "HTTP/1.1 40") {
				t.Errorf("%q: %q", req, out)
			}
		}
	}
	if len(w.dialed) > 0 {
		t.Errorf("dialled %v", w.dialed)
	}
}

// TestHZ7_NamesOfPrivateAddressesAreRefused: what counts is what the server resolves,
// once: a name that changes afterwards is not asked again.
func TestHZ7_NamesOfPrivateAddressesAreRefused(t *testing.T) {
	s, _ := site(t)
	w := newWorld(t, s.Listener.Addr().String(), []string{"*"})
	for _, a := range []string{
		"127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "198.18.0.1",
		"192.0.2.1", "::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001::1", "fec0::1",
		"64:ff9b::5db8:d70e", "64:ff9b:1::1", "168.63.129.16", "::ffff:168.63.129.16", "::5db8:d70e",
	} {
		w.names["private.example"] = [][]netip.Addr{{netip.MustParseAddr(a)}}
		if out := w.say("CONNECT private.example:443 HTTP/1.1\r\n\r\n"); !strings.Contains(out, "no public address") {
			t.Errorf("%s: %q", a, out)
		}
	}
	// Rebinding: public when asked, this machine a moment later.
	w.names["rebinds.example"] = [][]netip.Addr{{public}, {netip.MustParseAddr("127.0.0.1")}}
	if out := w.say("GET http://rebinds.example/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(out, "HTTP/1.1 200") {
		t.Errorf("%q", out)
	}
	// Both at once: only the public one is dialled.
	w.names["both.example"] = [][]netip.Addr{{netip.MustParseAddr("10.0.0.1"), public}}
	if out := w.say("GET http://both.example/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(out, "HTTP/1.1 200") {
		t.Errorf("%q", out)
	}
	for _, to := range w.dialed {
		if to.Addr() != public {
			t.Errorf("dialled %s", to)
		}
	}
	if len(w.dialed) != 2 {
		t.Errorf("dialled %v", w.dialed)
	}
}

// TestHZ7_RequestsAreWrittenAnew: neither a second host nor a second request inside
// the first reaches a server that the proxy did not decide on.
func TestHZ7_RequestsAreWrittenAnew(t *testing.T) {
	s, got := site(t)
	w := newWorld(t, s.Listener.Addr().String(), []string{"a.example"})
	w.names["a.example"] = [][]netip.Addr{{public}}
	out := w.say("POST http://a.example/one HTTP/1.1\r\nHost: evil.example\r\nProxy-Authorization: x\r\nProxy-Connection: keep-alive\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\nTE: trailers\r\nUpgrade: h2c\r\nContent-Length: 4\r\n\r\nbody")
	if !strings.Contains(out, `POST /one with "body"`) || strings.Contains(out, "Secret-Hop") {
		t.Errorf("%q", out)
	}
	r := <-got
	if r.Host != "a.example" {
		t.Errorf("the site was told the host %q", r.Host)
	}
	for _, name := range []string{"Proxy-Authorization", "Proxy-Connection", "X-Mine", "Te", "Upgrade"} {
		if r.Header.Get(name) != "" {
			t.Errorf("%s went through", name)
		}
	}
	for _, raw := range []string{
		// Two ways to say how long it is: the chunked one holds, and the rest is a
		// request of its own, which has to be decided on.
		"POST http://a.example/two HTTP/1.1\r\nHost: a.example\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
		"POST http://a.example/two HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nContent-Length: 60\r\nConnection: close\r\n\r\nbody",
		"POST http://a.example/two HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: xchunked\r\nConnection: close\r\n\r\n0\r\n\r\n",
		"GET http://a.example/two HTTP/1.1\r\nHost: a.example\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
		"GET http://a.example/two HTTP/1.1\r\nHost : a.example\r\nConnection: close\r\n\r\n",
		"GET http://user@a.example/two HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
		"GET https://a.example/two HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
		"GET /two HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
		"CONNECT a.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"CONNECT a.example:0443x HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"CONNECT a.example:22 HTTP/1.1\r\nHost: a.example\r\n\r\n",
	} {
		if out := w.say(raw); strings.Contains(out, "evil") && strings.Contains(out, "200 OK\r\n") && strings.Count(out, "HTTP/1.1 200") > 1 ||
			!strings.Contains(out, "HTTP/1.1 40") && !strings.Contains(out, "HTTP/1.1 501") {
			t.Errorf("%q: %q", raw, out)
		}
	}
	close(got)
	for r := range got {
		if r.Host != "a.example" || r.URL.Path != "/two" {
			t.Errorf("the site saw %s %s", r.Host, r.URL)
		}
	}
}

// dialTunnel opens a tunnel.
func (w *world) dialTunnel(to string) (net.Conn, *bufio.Reader) {
	w.Helper()
	here, there := pipe(w.T)
	w.p.Serve(session, "", there)
	_, _ = io.WriteString(here, "CONNECT "+to+" HTTP/1.1\r\nHost: "+to+"\r\n\r\n")
	_ = here.SetDeadline(time.Now().Add(20 * time.Second))
	r := bufio.NewReader(here)
	line, err := r.ReadString('\n')
	if err != nil || !strings.Contains(line, "200") {
		w.Fatalf("%q %v", line, err)
	}
	if _, err := r.ReadString('\n'); err != nil {
		w.Fatal(err)
	}
	return here, r
}

// A tunnel carries both ways, counts, and is cut when its grant goes; others stay.
func TestTunnelsLastAsLongAsTheirGrant(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	both.Go(func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			both.Go(func() { _, _ = io.Copy(c, c); _ = c.Close() })
		}
	})
	t.Cleanup(func() { _ = echo.Close(); both.Wait() })
	w := newWorld(t, echo.Addr().String(), []string{"a.example", "b.example"})
	w.names["a.example"] = [][]netip.Addr{{public}}
	w.names["b.example"] = [][]netip.Addr{{public}}
	a, fromA := w.dialTunnel("a.example:443")
	b, fromB := w.dialTunnel("b.example:443")
	for _, c := range []struct {
		net.Conn
		r *bufio.Reader
	}{{a, fromA}, {b, fromB}} {
		_, _ = io.WriteString(c, "hello\n")
		if line, err := c.r.ReadString('\n'); line != "hello\n" {
			t.Fatalf("%q %v", line, err)
		}
	}
	w.grant([]string{"b.example"})
	w.p.Changed(t.Context(), session)
	if _, err := fromA.ReadString('\n'); err == nil {
		t.Error("a tunnel goes on without its grant")
	}
	_, _ = io.WriteString(b, "still\n")
	if line, err := fromB.ReadString('\n'); line != "still\n" {
		t.Errorf("%q %v", line, err)
	}
	_ = b.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(fromB); len(rest) > 0 || err != nil {
		t.Errorf("%q %v", rest, err)
	}
	testkit.Eventually(t, "both are recorded", func() bool { return len(w.recorded()) == 2 })
	for _, ev := range w.recorded() {
		if ev.typ != holdfast.EventEgressAllowed || ev.d.Method != "CONNECT" || ev.d.Sent < 6 || ev.d.Received < 6 || ev.d.Address != public.String() || ev.d.Rule != ev.d.Host {
			t.Errorf("%+v", ev)
		}
	}
}

// A box that asks again and again fills no log, and no memory.
func TestRefusalsAreGathered(t *testing.T) {
	w := newWorld(t, "", []string{"a.example"})
	for range 50 {
		w.say("CONNECT evil.example:443 HTTP/1.1\r\n\r\n")
	}
	for i := range 100 {
		w.say(fmt.Sprintf("CONNECT evil%d.example:443 HTTP/1.1\r\n\r\n", i))
	}
	if n := len(w.recorded()); n == 0 || n > 40 {
		t.Errorf("%d events", n)
	}
	_ = w.p.Close()
	total := 0
	for _, ev := range w.recorded() {
		if ev.typ != holdfast.EventEgressDenied {
			t.Errorf("%+v", ev)
		}
		total += max(1, ev.d.Count)
	}
	if total != 150 {
		t.Errorf("%d of 150 are accounted for", total)
	}
}

// More connections than a session may have are refused.
func TestConnectionsAreBounded(t *testing.T) {
	hold, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hold.Close() })
	w := newWorld(t, hold.Addr().String(), []string{"a.example"})
	w.names["a.example"] = [][]netip.Addr{{public}}
	for range 4 {
		w.dialTunnel("a.example:443")
	}
	if out := w.say("CONNECT a.example:443 HTTP/1.1\r\n\r\n"); !strings.HasPrefix(out, "HTTP/1.1 429") {
		t.Errorf("%q", out)
	}
}

// TestHZ7_AGrantThatGoesDuringTheLookupOpensNothing: a grant that is taken away while its name is looked up opens no
// connection, whether or not the proxy was told of the change.
func TestHZ7_AGrantThatGoesDuringTheLookupOpensNothing(t *testing.T) {
	for _, told := range []bool{true, false} {
		for _, request := range []string{"CONNECT a.example:443 HTTP/1.1\r\n\r\n", "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"} {
			s, _ := site(t)
			w := newWorld(t, s.Listener.Addr().String(), []string{"a.example"})
			w.names["a.example"] = [][]netip.Addr{{public}}
			w.looked = func(context.Context) {
				w.grant([]string{"b.example"})
				if told {
					w.p.Changed(t.Context(), session)
				}
			}
			out := w.say(request)
			if !strings.HasPrefix(out, "HTTP/1.1 403") || len(w.dialed) > 0 {
				t.Errorf("told %v: answered %q, dialed %v", told, out, w.dialed)
			}
			if evs := w.recorded(); len(evs) != 1 || evs[0].typ != holdfast.EventEgressDenied || !strings.Contains(evs[0].d.Reason, "granted") {
				t.Errorf("told %v: %+v", told, evs)
			}
		}
	}
}

// TestAbsurdStatusesAreRefused: a status that no HTTP server may send is refused with an event, and breaks no handler.
func TestAbsurdStatusesAreRefused(t *testing.T) {
	for _, status := range []string{"000", "099", "101", "199", "1000"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var served sync.WaitGroup
		served.Go(func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(c))
			_, _ = io.WriteString(c, "HTTP/1.1 "+status+" Odd\r\nContent-Length: 2\r\n\r\nno")
			_ = c.Close()
		})
		w := newWorld(t, l.Addr().String(), []string{"a.example"})
		w.names["a.example"] = [][]netip.Addr{{public}}
		if out := w.say("GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(out, "HTTP/1.1 502") {
			t.Errorf("%s: %q", status, out)
		}
		if evs := w.recorded(); len(evs) != 1 || evs[0].typ != holdfast.EventEgressDenied || evs[0].d.Host != "a.example" {
			t.Errorf("%s: %+v", status, evs)
		}
		_ = l.Close()
		served.Wait()
	}
}
