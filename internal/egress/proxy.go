package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model/remote"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

const (
	resolveTimeout = 10 * time.Second
	dialTimeout    = 30 * time.Second
	answerTimeout  = 5 * time.Minute
	// tunnelSilence is the time without any bytes after which a tunnel is closed.
	tunnelSilence = 15 * time.Minute
	maxAddresses  = 4
)

// Sessions is the part of the engine that the proxy uses.
type Sessions interface {
	Recorder
	// Network returns the destinations that the box of a session may reach now.
	Network(ctx context.Context, id holdfast.SessionID) (check.Reach, error)
}

// ProxyConfig configures a Proxy. Sessions, Now and Log must be set.
type ProxyConfig struct {
	Sessions Sessions
	// Resolve looks up names and Dial connects; nil means the functions of this package with these names.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	Dial    func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	// Own returns the networks of this machine, which no box may reach; nil means the function Interfaces.
	Own func() ([]netip.Prefix, error)
	// MaxConnections is the most open connections of one session (default 64).
	MaxConnections int
	Now            func() time.Time
	Log            *slog.Logger
}

// Proxy connects boxes to the domains that they were granted, by CONNECT and plain HTTP. Safe for
// concurrent use.
type Proxy struct {
	cfg       ProxyConfig
	door      *door
	ledger    *ledger
	transport *http.Transport
	own       *own

	mu   sync.Mutex
	open map[holdfast.SessionID]map[*passage]struct{}
}

// passage is one request or CONNECT tunnel of a box through the proxy.
type passage struct {
	id             holdfast.SessionID
	method         string
	host           string
	port           int
	path           string
	rule           string
	addrs          []netip.Addr
	address        netip.Addr
	began          time.Time
	sent, received atomic.Int64
	// life is a context. cut cancels it, with the reason as its cause.
	life context.Context
	cut  context.CancelCauseFunc
}

// NewProxy returns a proxy that serves until Close. ctx must not end before that.
func NewProxy(ctx context.Context, cfg ProxyConfig) *Proxy {
	if cfg.Resolve == nil {
		cfg.Resolve = Resolve
	}
	if cfg.Dial == nil {
		cfg.Dial = Dial
	}
	if cfg.Own == nil {
		cfg.Own = Interfaces
	}
	if cfg.MaxConnections == 0 {
		cfg.MaxConnections = 64
	}
	p := &Proxy{cfg: cfg, own: &own{read: cfg.Own, now: cfg.Now}, open: map[holdfast.SessionID]map[*passage]struct{}{}}
	p.ledger = newLedger(ctx, cfg.Sessions, cfg.Now, cfg.Log)
	p.transport = &http.Transport{
		DialContext: p.dialPassage, DisableKeepAlives: true, DisableCompression: true,
		ResponseHeaderTimeout: answerTimeout, MaxResponseHeaderBytes: 256 << 10,
	}
	p.door = newDoor(http.HandlerFunc(p.route), cfg.Log)
	return p
}

// Serve serves a connection from the box of session id to its proxy port. If key is not empty, each request has to carry
// it. Serve closes conn.
func (p *Proxy) Serve(id holdfast.SessionID, key string, conn net.Conn) { p.door.serve(id, key, conn) }

// Close closes all connections and tunnels, and records the decisions not recorded yet.
func (p *Proxy) Close() error {
	err := p.door.close()
	p.cutAll(errStops, func(*passage) bool { return true })
	p.door.wait()
	p.ledger.close()
	return err
}

// Changed closes the open connections of a session to destinations that it may no longer reach, and all of them if
// the destinations cannot be read. It has to be called after the session's network settings changed.
func (p *Proxy) Changed(ctx context.Context, id holdfast.SessionID) {
	reach, err := p.cfg.Sessions.Network(ctx, id)
	p.cutAll(errCut, func(one *passage) bool {
		if one.id != id {
			return false
		}
		_, _, ok := reach.Allows(one.host, one.port)
		return err != nil || !ok
	})
}

// The causes with which a passage is cut: its grant was taken away, or the proxy closes.
var (
	errCut   = holdfast.Errorf(holdfast.KindDenied, "proxy", "the network destination is not granted to the session any more")
	errStops = holdfast.Errorf(holdfast.KindUnavailable, "proxy", "the server's network proxy is being closed")
)

// cutAll ends each open passage for which the given function returns true. cause is the reason that the passage reports.
func (p *Proxy) cutAll(cause error, which func(*passage) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, set := range p.open {
		for one := range set {
			if which(one) {
				one.cut(cause)
			}
		}
	}
}

func (p *Proxy) route(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	// The request's context may be cancelled before a tunnel takes over its connection. one.cut must close
	// the tunnel even then, so life is not cancelled together with that context.
	life, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	defer context.AfterFunc(life, func() { cancel(context.Cause(life)) })()
	one := &passage{id: sessionOf(r.Context()), method: r.Method, path: r.URL.Path, began: p.cfg.Now(), life: life, cut: cut}
	err := p.admit(ctx, r, one)
	if err != nil {
		p.refuse(w, one, err)
		return
	}
	defer p.leave(one)
	if r.Method == http.MethodConnect {
		err = p.tunnel(ctx, w, one)
	} else {
		err = p.pass(ctx, w, r, one)
	}
	if err != nil {
		p.refuse(w, one, err)
		return
	}
	p.ledger.add(one.id, holdfast.EventEgressAllowed, p.decision(one, ""))
}

// admit checks whether the session may reach the destination of a request, and resolves the destination's host to public
// addresses, which it sets in one. It checks the grant a second time after the lookup of the host, which takes time, so that
// no connection is opened if the grant was taken away meanwhile. After an error the request must not be sent.
func (p *Proxy) admit(ctx context.Context, r *http.Request, one *passage) error {
	if err := one.aim(r); err != nil {
		return err
	}
	name, err := check.ValidHost(one.host)
	if err != nil {
		return err
	}
	one.host = name
	if one.rule, err = p.granted(ctx, one); err != nil {
		return err
	}
	// Changed sees the passage from here on, and cuts it if the grant is taken away after the second check.
	if err := p.enter(one); err != nil {
		return err
	}
	addrs, err := p.resolve(ctx, one.host)
	if one.life.Err() != nil {
		err = context.Cause(one.life)
	} else if err == nil {
		one.rule, err = p.granted(ctx, one)
	}
	if err != nil {
		p.leave(one)
		return err
	}
	one.addrs = addrs
	return nil
}

// granted returns the rule that grants the destination of a passage to its session; denied if no rule does.
func (p *Proxy) granted(ctx context.Context, one *passage) (rule string, err error) {
	reach, err := p.cfg.Sessions.Network(ctx, one.id)
	if err != nil {
		return "", err
	}
	rule, of, ok := reach.Allows(one.host, one.port)
	if ok {
		return rule, nil
	}
	if of == "" {
		of = "session, which may reach no destination"
	}
	return "", holdfast.Errorf(holdfast.KindDenied, "proxy", "the network destination %s:%d is not granted by the %s", one.host, one.port, of).
		WithHint("holdfast session update %s --allow-net %s, within what the server's network.allow names", one.id, check.Destination{Domain: one.host, Port: odd(one.port)})
}

// odd returns the port that a network rule has to name to match a destination, or 0 for ports 80 and 443,
// which a rule need not name.
func odd(port int) int {
	if port == 80 || port == 443 {
		return 0
	}
	return port
}

// aim sets the host, port and path of the passage from a request; invalid if they are missing or not
// allowed.
func (one *passage) aim(r *http.Request) error {
	bad := func(why string) error { return holdfast.Errorf(holdfast.KindInvalid, "proxy", "%s", why) }
	authority := r.URL.Host
	if r.Method == http.MethodConnect {
		one.path = ""
		host, port, err := net.SplitHostPort(authority)
		if err != nil || r.URL.Path != "" {
			one.host = cutName(authority)
			return bad("a CONNECT request needs a host and a port")
		}
		return one.at(host, port)
	}
	switch {
	case !r.URL.IsAbs():
		one.host = cutName(r.Host)
		return bad("this is a proxy: send the whole URL in the request, or use CONNECT")
	case r.URL.Scheme != "http":
		one.host = cutName(authority)
		return bad("only http URLs are accepted without CONNECT")
	case r.URL.User != nil:
		one.host = cutName(r.URL.Hostname())
		return bad("a URL with a user name is refused")
	}
	port := r.URL.Port()
	if port == "" {
		port = "80"
	}
	return one.at(r.URL.Hostname(), port)
}

func (one *passage) at(host, port string) error {
	one.host = cutName(host)
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || len(host) > 253 {
		return holdfast.Errorf(holdfast.KindInvalid, "proxy", "%s is not a valid host and port", holdfast.Quote(net.JoinHostPort(host, port)))
	}
	one.port = int(n)
	return nil
}

// cutName returns at most 253 bytes of s without control characters, so that a box cannot flood the
// log.
func cutName(s string) string { return remote.Clean(s[:min(len(s), 253)]) }

func (p *Proxy) enter(one *passage) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	set := p.open[one.id]
	if len(set) >= p.cfg.MaxConnections {
		return holdfast.Errorf(holdfast.KindBusy, "proxy", "the session has %d connections open through the proxy, the most that are allowed", len(set))
	}
	if set == nil {
		set = map[*passage]struct{}{}
		p.open[one.id] = set
	}
	set[one] = struct{}{}
	return nil
}

func (p *Proxy) leave(one *passage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open[one.id], one)
	if len(p.open[one.id]) == 0 {
		delete(p.open, one.id)
	}
}

// refuse answers a request of the box that was refused or that failed with err, and records a denial. If err
// says that the answer was aborted halfway, it records the request as allowed and breaks the connection.
func (p *Proxy) refuse(w http.ResponseWriter, one *passage, err error) {
	if errors.Is(err, http.ErrAbortHandler) {
		p.ledger.add(one.id, holdfast.EventEgressAllowed, p.decision(one, ""))
		panic(http.ErrAbortHandler)
	}
	status := http.StatusForbidden
	switch holdfast.KindOf(err) {
	case holdfast.KindInvalid:
		status = http.StatusBadRequest
	case holdfast.KindBusy:
		status = http.StatusTooManyRequests
	case holdfast.KindUnavailable:
		status = http.StatusBadGateway
	}
	p.ledger.add(one.id, holdfast.EventEgressDenied, p.decision(one, messageOf(err)))
	patient(w, p.cfg.Now())
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Connection", "close")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "holdfast: %s\n", messageOf(err)) // an error means that the client has disconnected, which is normal
	if hint := holdfast.HintOf(err); hint != "" {
		_, _ = fmt.Fprintf(w, "hint: %s\n", hint)
	}
}

func (p *Proxy) decision(one *passage, reason string) holdfast.EgressDecision {
	d := holdfast.EgressDecision{
		Via: "proxy", Method: cutName(one.method), Host: one.host, Port: one.port, Rule: one.rule, Reason: reason,
		Sent: one.sent.Load(), Received: one.received.Load(),
	}
	if one.address.IsValid() {
		d.Address = one.address.String()
	}
	if reason == "" {
		d.DurationMS = clock.Milliseconds(p.cfg.Now().Sub(one.began))
	}
	if one.path != "" {
		d.Path = remote.Clean(one.path[:min(len(one.path), 256)])
	}
	return d
}

// tunnel connects to the destination and passes bytes in both directions. It ends when both directions have
// ended, when no byte has passed for tunnelSilence, or when one.cut is called.
func (p *Proxy) tunnel(ctx context.Context, w http.ResponseWriter, one *passage) error {
	out, addr, err := p.dial(ctx, one.addrs, one.port)
	if err != nil {
		return err
	}
	defer out.Close()
	one.address = addr
	in, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer in.Close()
	_ = in.SetDeadline(noDeadline)
	stop := context.AfterFunc(one.life, func() {
		_ = in.Close()
		_ = out.Close()
	})
	defer stop()
	if _, err := io.WriteString(in, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return nil
	}
	silence := time.AfterFunc(tunnelSilence, func() {
		_ = in.Close()
		_ = out.Close()
	})
	defer silence.Stop()
	var both sync.WaitGroup
	both.Go(func() { carry(out, buffered, &one.sent, silence) })
	both.Go(func() { carry(in, out, &one.received, silence) })
	both.Wait()
	return nil
}

// carry copies the bytes of one connection (from) to another (to). When from ends, it closes the sending side of to;
// after an error, all of to. With each piece it adds to count and restarts the timer silence.
func carry(to net.Conn, from io.Reader, count *atomic.Int64, silence *time.Timer) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			silence.Reset(tunnelSilence)
			count.Add(int64(n))
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if err == nil {
			continue
		}
		if c, ok := to.(interface{ CloseWrite() error }); ok && errors.Is(err, io.EOF) {
			_ = c.CloseWrite()
		} else {
			_ = to.Close()
		}
		return
	}
}
