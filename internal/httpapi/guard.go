package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
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

	"github.com/holdfast-run/holdfast"
)

// ServeHTTP answers one request: host and origin first, then the path, then the
// token, then the route.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer a.recover(w, r)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if err := a.admit(r); err != nil {
		newProblem(err).write(w)
		return
	}
	if _, pattern := a.mux.Handler(r); pattern == "" {
		a.unknown(w, r)
		return
	}
	if r.ContentLength != 0 {
		r.Body = &patientBody{ReadCloser: r.Body, rc: http.NewResponseController(w), now: a.cfg.Now, limit: a.cfg.ReadTimeout}
	}
	a.mux.ServeHTTP(w, r)
}

func (a *API) admit(r *http.Request) error {
	if err := a.checkHost(r.Host); err != nil {
		return err
	}
	if err := a.checkOrigin(r); err != nil {
		return err
	}
	if !cleanPath(r.URL.EscapedPath()) {
		return holdfast.Errorf(holdfast.KindInvalid, "request", "path %s is not clean", holdfast.Quote(r.URL.EscapedPath())).
			WithHint("leave out //, /./ and /../; an absolute path of a file starts with %%2F")
	}
	if r.URL.Path == "/v1" || strings.HasPrefix(r.URL.Path, "/v1/") {
		return a.authenticate(r)
	}
	return nil
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

func (a *API) authenticate(r *http.Request) error {
	const hint = "set HOLDFAST_TOKEN, or send Authorization: Bearer with the token that serve wrote to its data directory"
	auth := r.Header.Get("Authorization")
	if auth == "" {
		return holdfast.Errorf(holdfast.KindUnauthenticated, "request", "the request carries no token").WithHint(hint)
	}
	scheme, token, _ := strings.Cut(auth, " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	// Hashing first makes the comparison take the same time for every length.
	if a.cfg.Token == "" || !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(sum[:], a.token[:]) != 1 {
		return holdfast.Errorf(holdfast.KindUnauthenticated, "request", "the token is not valid here").WithHint(hint)
	}
	return nil
}

// unknown answers what no route takes, with the status the router would give.
func (a *API) unknown(w http.ResponseWriter, r *http.Request) {
	probe := statusProbe{header: http.Header{}}
	a.mux.ServeHTTP(&probe, r)
	if probe.status == http.StatusMethodNotAllowed {
		allow := probe.header.Get("Allow")
		p := newProblem(holdfast.Errorf(holdfast.KindInvalid, "request", "method %s is not for %s",
			holdfast.Quote(r.Method), holdfast.Quote(r.URL.Path)).WithHint("use %s", allow))
		p.Status, p.Title = http.StatusMethodNotAllowed, http.StatusText(http.StatusMethodNotAllowed)
		w.Header().Set("Allow", allow)
		p.write(w)
		return
	}
	newProblem(holdfast.Errorf(holdfast.KindNotFound, "request", "no route %s", holdfast.Quote(r.URL.Path)).
		WithHint("GET /openapi.json lists the routes")).write(w)
}

// recover turns a panic into a problem, unless the answer has begun.
func (a *API) recover(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	a.cfg.Log.Error("panic in a request", "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
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

// patientBody cuts a sender that sends nothing for the limit, however long the
// whole body takes.
type patientBody struct {
	io.ReadCloser
	rc    *http.ResponseController
	now   func() time.Time
	limit time.Duration
}

func (b *patientBody) Read(p []byte) (int, error) {
	// A connection without deadlines (a test recorder) only loses the limit.
	_ = b.rc.SetReadDeadline(b.now().Add(b.limit))
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		// After any other error the deadline stays: closing the body reads on.
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
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
