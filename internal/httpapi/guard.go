package httpapi

import (
	"context"
	"errors"
	"io"
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
	"github.com/holdfast-run/holdfast/internal/journal"
)

// listsRoutes is the hint for who asks for what there is not.
const listsRoutes = "GET /openapi.json lists the routes"

// ServeHTTP answers one request: host and origin first, then the path, then the
// token, then the route.
func (a *API) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := &seen{ResponseWriter: rw}
	defer a.answered(r.Context(), w, r, a.cfg.Now())
	defer a.recover(w, r)
	r = a.name(w, r)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if err := a.admit(r); err != nil {
		newProblem(err).write(w)
		return
	}
	_, pattern := a.mux.Handler(r)
	w.pattern = pattern
	who, err := a.pass(r, pattern)
	if err != nil {
		newProblem(err).write(w)
		return
	}
	if pattern == "" {
		unknown(a.mux, w, r, listsRoutes)
		return
	}
	if err := checkKey(r, pattern); err != nil {
		newProblem(err).write(w)
		return
	}
	r = r.WithContext(journal.As(context.WithValue(r.Context(), callerKey{}, who), who.name()))
	err = a.held(r, pattern)
	if err == nil {
		err = a.limited(r.Context(), r, pattern)
	}
	if err != nil {
		newProblem(err).write(w)
		return
	}
	rc := http.NewResponseController(w)
	if r.ContentLength != 0 {
		r.Body = &patientBody{ReadCloser: r.Body, rc: rc, now: a.cfg.Now, limit: a.cfg.ReadTimeout}
	}
	if err := a.undeclared(r, pattern); err != nil {
		newProblem(err).write(w)
		return
	}
	r, leave, err := a.enter(w, r, pattern)
	if err != nil {
		newProblem(err).write(w)
		return
	}
	defer leave()
	// A deadline of the connection's last answer would cut this one.
	_ = rc.SetWriteDeadline(time.Time{})
	a.mux.ServeHTTP(&patientWriter{ResponseWriter: w, rc: rc, now: a.cfg.Now, limit: a.cfg.WriteTimeout}, r)
}

func (a *API) admit(r *http.Request) error {
	if err := a.checkHost(r.Host); err != nil {
		return err
	}
	if err := a.checkOrigin(r); err != nil {
		return err
	}
	if !cleanPath(r.URL.EscapedPath()) {
		return unclean(r)
	}
	if err := checkQuery(r.URL.RawQuery); err != nil {
		return err
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return holdfast.Errorf(holdfast.KindInvalid, "request", "content encoding %s is not taken", holdfast.Quote(enc)).
			WithHint("send the body as it is")
	}
	return nil
}

func unclean(r *http.Request) error {
	return holdfast.Errorf(holdfast.KindInvalid, "request", "path %s is not clean", holdfast.Quote(r.URL.EscapedPath())).
		WithHint("leave out //, /./ and /../; an absolute path of a file starts with %%2F")
}

// checkQuery refuses what net/http would drop without a word, and what is no
// text.
func checkQuery(raw string) error {
	if raw == "" {
		return nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "request", "the query does not parse: %w", err).
			WithHint("escape the values: %%25 for %%, %%3B for ;")
	}
	for name, list := range values {
		for _, s := range append(list, name) {
			if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
				return holdfast.Errorf(holdfast.KindInvalid, "request", "query.%s is not UTF-8 text without NUL",
					strings.Trim(holdfast.Quote(name), `"`)).WithHint("escape the bytes of UTF-8 text")
			}
		}
	}
	return nil
}

// undeclared refuses what a route would not look at: a body where none is taken,
// and a query where huma does not see it.
func (a *API) undeclared(r *http.Request, pattern string) error {
	body, described := a.bodies[pattern]
	if r.URL.RawQuery != "" && !described {
		return noQuery(r)
	}
	if body {
		return nil
	}
	return noBody(r)
}

func noQuery(r *http.Request) error {
	return holdfast.Errorf(holdfast.KindInvalid, "request", "%s takes no query", holdfast.Quote(r.URL.Path)).WithHint("leave out what follows the ?")
}

// noBody refuses a body. One that is said to come and is empty is none.
func noBody(r *http.Request) error {
	if r.ContentLength < 0 {
		n, err := io.ReadFull(r.Body, make([]byte, 1))
		if n == 0 && errors.Is(err, io.EOF) {
			return nil
		}
		if n == 0 {
			return uploadError(err, 0)
		}
	}
	if r.ContentLength == 0 {
		return nil
	}
	return holdfast.Errorf(holdfast.KindInvalid, "request", "%s %s takes no body", r.Method, holdfast.Quote(r.URL.Path)).
		WithHint("send the request without a body")
}

// pass lets a caller through to a route of the router. What the table of scopes
// does not name as public needs a token, also what no route takes.
func (a *API) pass(r *http.Request, pattern string) (caller, error) {
	need, known := routeScopes[pattern]
	if need == public {
		return a.recognize(r), nil
	}
	if pattern == "" && !strings.HasPrefix(r.URL.Path, "/v1/") && r.URL.Path != "/v1" {
		return caller{}, nil
	}
	who, err := a.authenticate(r)
	if err != nil {
		// Only failures count: who has a token is not locked out by a neighbour who
		// has none. The secrets are too long to be guessed at any rate.
		if wait := a.failures.take(address(r), a.cfg.Now()); wait > 0 {
			err = tooMany("requests without a valid token from this address", wait)
		}
		if a.refusals.take("", a.cfg.Now()) == 0 {
			a.cfg.Log.Warn("a request without a valid token was refused", "from", address(r), "path", holdfast.Quote(r.URL.Path), "why", err)
		}
		return who, err
	}
	if wait := a.rates.take(string(who.key.ID), a.cfg.Now()); wait > 0 {
		return who, tooMany("requests with this key", wait)
	}
	if pattern != "" && !known {
		return who, holdfast.Errorf(holdfast.KindInternal, "request", "the route %s has no scope", holdfast.Quote(pattern))
	}
	if pattern == "" {
		return who, nil
	}
	return who, authorize(who, need, r)
}

// checkHost refuses names that a foreign web page could have chosen (DNS
// rebinding).
func (a *API) checkHost(host string) error {
	if !a.loopback {
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
	if slices.ContainsFunc(a.cfg.Hosts, func(h string) bool { return strings.EqualFold(h, name) }) {
		return nil
	}
	return holdfast.Errorf(holdfast.KindDenied, "request", "host %s is not served here", holdfast.Quote(host)).
		WithHint("call the server by a loopback name, or list the host in the setting hosts")
}

// checkOrigin refuses requests of foreign web pages. Requests without an Origin
// do not come from a page's script.
func (a *API) checkOrigin(r *http.Request) error {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(a.cfg.Origins, origin) {
		return nil
	}
	if u, err := url.Parse(origin); err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host) {
		return nil
	}
	return holdfast.Errorf(holdfast.KindDenied, "request", "origin %s may not call this server", holdfast.Quote(origin)).
		WithHint("list it in the setting origins")
}

// unknown answers what no route takes, with the status the router would give.
func unknown(mux *http.ServeMux, w http.ResponseWriter, r *http.Request, hint string) {
	probe := statusProbe{header: http.Header{}}
	mux.ServeHTTP(&probe, r)
	if probe.status == http.StatusMethodNotAllowed {
		allow := probe.header.Get("Allow")
		p := newProblem(holdfast.Errorf(holdfast.KindInvalid, "request", "method %s is not for %s",
			holdfast.Quote(r.Method), holdfast.Quote(r.URL.Path)).WithHint("use %s", allow))
		p.Status, p.Title = http.StatusMethodNotAllowed, http.StatusText(http.StatusMethodNotAllowed)
		w.Header().Set("Allow", allow)
		p.write(w)
		return
	}
	newProblem(noRoute(r, hint)).write(w)
}

func noRoute(r *http.Request, hint string) error {
	return holdfast.Errorf(holdfast.KindNotFound, "request", "no route %s", holdfast.Quote(r.URL.Path)).WithHint("%s", hint)
}

// recover turns a panic into a problem, unless the answer has begun.
func (a *API) recover(w *seen, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	a.log(w, r).Error("panic in a request", "panic", v, "stack", string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler) // the caller must not take it for whole
	}
	newProblem(holdfast.Errorf(holdfast.KindInternal, "request", "the server failed at this request").
		WithHint("the server's log has the details")).write(w)
}

// cleanPath reports whether the router would take the path as it is, without a
// redirect.
func cleanPath(p string) bool {
	if !strings.HasPrefix(p, "/") || strings.Contains(p, "//") {
		return false
	}
	for seg := range strings.SplitSeq(p, "/") {
		if seg == "." || seg == ".." {
			return false
		}
	}
	return true
}

// Metrics serves GET /metrics, and nothing else, to everybody.
func Metrics(h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		switch _, pattern := mux.Handler(r); {
		case !cleanPath(r.URL.EscapedPath()):
			err = unclean(r)
		case pattern == "":
			unknown(mux, w, r, "GET /metrics is all there is here")
			return
		case r.URL.RawQuery != "":
			err = noQuery(r)
		default:
			err = noBody(r)
		}
		if err != nil {
			newProblem(err).write(w)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// statusProbe learns what the router would answer.
type statusProbe struct {
	header http.Header
	status int
}

func (p *statusProbe) Header() http.Header { return p.header }

func (p *statusProbe) WriteHeader(status int) {
	if p.status == 0 {
		p.status = status
	}
}

func (p *statusProbe) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	return len(b), nil
}
