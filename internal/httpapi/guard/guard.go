package guard

import (
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/body"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// loggedRefusals is the most requests without a valid token that are logged per minute.
const loggedRefusals = 6

// Access configures from which hosts and origins the API may be called, and the owner's token.
type Access struct {
	// Token is the owner's bearer token. If it is empty, only API keys are accepted.
	Token string
	// Listen is the address the server listens on, host:port. If it is a loopback
	// address, only requests to a loopback host name, or to one of Hosts, are
	// answered, so that a web page cannot reach the server by its own DNS name.
	Listen string
	// Hosts are further host names, without port, that a request may name.
	Hosts []string
	// Origins are further web origins, as "https://example.com", whose pages may
	// call the API. The server's own origin always may.
	Origins []string
}

// Keys finds the API key that belongs to a secret; see the interface Keys of httpapi.
type Keys interface {
	Check(ctx context.Context, secret string) (holdfast.Key, error)
}

// Sessions finds a session, whose trust is compared with the caller's.
type Sessions interface {
	Session(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error)
}

// Config configures a Guard. All fields except Held are required.
type Config struct {
	Access   Access
	Keys     Keys
	Sessions Sessions
	// Routes are the handlers behind the guard. Rules are their requirements, by pattern.
	Routes *http.ServeMux
	Rules  map[string]Rule
	// Rate is the most requests of one key per second, Failures the most requests from one
	// address per minute that fail to authenticate; values below 1 set no limit.
	Rate, Failures int
	// ReadTimeout is how long the sender of a body may pause, and how long a large body may
	// wait for memory; WriteTimeout is how long a client may take to accept a piece of an answer.
	ReadTimeout, WriteTimeout time.Duration
	// Held is the reason why the server refuses all requests but reads; nil if it accepts work.
	Held error
	// Answered is called after each answer with the pattern of the route, empty if no route
	// matched, and the status.
	Answered func(pattern string, status int)
	Now      func() time.Time
	// Rand is the source of request ids.
	Rand io.Reader
	Log  *slog.Logger
}

// Guard is the handler in front of the routes. Safe for concurrent use.
type Guard struct {
	cfg      Config
	loopback bool
	token    [sha256.Size]byte
	problems *problem.Reporter
	room     *room
	// rates limits the requests of each key, failures the failed authentications from each address,
	// refusals the log lines about requests without a valid token.
	rates, failures, refusals *limits
}

// New returns a guard in front of cfg.Routes.
func New(cfg Config) *Guard {
	return &Guard{
		cfg: cfg, loopback: Loopback(cfg.Access.Listen), token: sha256.Sum256([]byte(cfg.Access.Token)), problems: problem.NewReporter(cfg.Log),
		room: newRoom(cfg.ReadTimeout), rates: newLimits(cfg.Rate, time.Second), failures: newLimits(cfg.Failures, time.Minute),
		refusals: newLimits(loggedRefusals, time.Minute),
	}
}

// ServeHTTP passes a request on to its route if all checks accept it, and otherwise answers with
// the refusal.
func (g *Guard) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := &answer{ResponseWriter: rw, conn: http.NewResponseController(rw), now: g.cfg.Now, limit: g.cfg.WriteTimeout}
	r = g.name(w, r)
	defer g.count(w, r, g.cfg.Now())
	defer g.recover(w, r)
	// Remove the deadline that the last answer on this connection has left.
	_ = w.conn.SetWriteDeadline(time.Time{})
	w.Header().Set("X-Content-Type-Options", "nosniff")
	r, err := g.admit(w, r)
	if err != nil {
		g.problems.Answer(w, r, err)
		return
	}
	if w.pattern == "" {
		refuseUnknown(g.cfg.Routes, w, r, routesHint)
		return
	}
	r, leave, err := g.takeBody(w, r, g.cfg.Rules[w.pattern])
	if err != nil {
		g.problems.Answer(w, r, err)
		return
	}
	defer leave()
	g.cfg.Routes.ServeHTTP(w, r)
}

// admit checks the head of a request: first host and origin, then the path, the caller, and the
// requirements of the route. The context of the returned request holds the caller.
func (g *Guard) admit(w *answer, r *http.Request) (*http.Request, error) {
	if err := g.checkHead(r); err != nil {
		return r, err
	}
	_, w.pattern = g.cfg.Routes.Handler(r)
	who, err := g.identify(r, w.pattern)
	if err != nil || w.pattern == "" {
		return r, err
	}
	rule := g.cfg.Rules[w.pattern]
	if err := checkKey(r, w.pattern, rule); err != nil {
		return r, err
	}
	r = r.WithContext(journal.As(context.WithValue(r.Context(), callerKey{}, who), who.Name()))
	if err := g.checkHeld(r, rule); err != nil {
		return r, err
	}
	return r, g.checkTrust(r, w.pattern, rule)
}

// takeBody refuses a query or a body that the route would ignore, and a body that is too large. A
// large body waits for memory that is reserved for large bodies; leave releases it.
func (g *Guard) takeBody(w *answer, r *http.Request, rule Rule) (_ *http.Request, leave func(), err error) {
	if r.ContentLength != 0 {
		r.Body = body.Patient(r.Body, w.conn, g.cfg.Now, g.cfg.ReadTimeout)
	}
	if r.URL.RawQuery != "" && !rule.Query {
		return r, nil, noQuery(r)
	}
	if rule.MaxBody == 0 {
		err = body.CheckNone(r)
	} else {
		err = body.CheckLength(r, rule.MaxBody)
	}
	if err != nil {
		return r, nil, err
	}
	return g.room.enter(w, r, rule)
}

func (g *Guard) checkHead(r *http.Request) error {
	if err := g.checkHost(r.Host); err != nil {
		return err
	}
	if err := g.checkOrigin(r); err != nil {
		return err
	}
	if !cleanPath(r.URL.EscapedPath()) {
		return unclean(r)
	}
	if err := checkQuery(r.URL.RawQuery); err != nil {
		return err
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return holdfast.Errorf(holdfast.KindInvalid, "request", "the content encoding %s of the request body is not supported", holdfast.Quote(enc)).
			WithHint("send the body without an encoding")
	}
	return nil
}

// checkHost refuses host names that a foreign web page could have chosen (DNS rebinding). It accepts
// all names if the server does not listen on a loopback address.
func (g *Guard) checkHost(host string) error {
	if !g.loopback {
		return nil
	}
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if strings.EqualFold(name, "localhost") {
		return nil
	}
	if ip, err := netip.ParseAddr(name); err == nil && ip.IsLoopback() {
		return nil
	}
	if slices.ContainsFunc(g.cfg.Access.Hosts, func(h string) bool { return strings.EqualFold(h, name) }) {
		return nil
	}
	return holdfast.Errorf(holdfast.KindDenied, "request", "the server does not answer requests for the host %s", holdfast.Quote(host)).
		WithHint("call the server by a loopback name, or add the host to the setting hosts")
}

// checkOrigin refuses requests whose Origin header names a foreign web page. It accepts a request
// without the header: a browser sends the header whenever a page could read the answer or change something.
func (g *Guard) checkOrigin(r *http.Request) error {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(g.cfg.Access.Origins, origin) {
		return nil
	}
	if u, err := url.Parse(origin); err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host) {
		return nil
	}
	return holdfast.Errorf(holdfast.KindDenied, "request", "web pages of the origin %s may not call this server", holdfast.Quote(origin)).
		WithHint("add the origin to the setting origins")
}

// checkQuery refuses a query of which net/http would drop a part without an error, and a query
// that is not UTF-8 text without NUL.
func checkQuery(raw string) error {
	if raw == "" {
		return nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "request", "the query of the URL cannot be parsed: %w", err).
			WithHint("escape the values of the query: %%25 for %%, %%3B for ;")
	}
	for name, list := range values {
		for _, s := range append(list, name) {
			if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
				return holdfast.Errorf(holdfast.KindInvalid, "request", "query.%s is not UTF-8 text without NUL",
					strings.Trim(holdfast.Quote(name), `"`)).WithHint("send UTF-8 text without NUL, each byte escaped as %%XX")
			}
		}
	}
	return nil
}

// recover turns a panic of a route into a problem document, or breaks the connection if the answer
// has begun.
func (g *Guard) recover(w *answer, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	g.problems.Log(w, r).Error("the handler of a request panicked", "panic", v, "stack", string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler) // so that the client notices that the answer is incomplete
	}
	problem.Of(holdfast.Errorf(holdfast.KindInternal, "request", "the server failed to handle this request").
		WithHint("the server's log has the details")).Write(w)
}

// Loopback reports whether a listening address is reachable from this machine only.
func Loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		host = listen
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
