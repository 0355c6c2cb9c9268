package guard

import (
	"net/http"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/body"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
)

// routesHint is the hint for a request that matches no route.
const routesHint = "GET /openapi.json lists the routes"

// NoRoute returns the error for a request that matches no route.
func NoRoute(r *http.Request) error { return noRoute(r, routesHint) }

func noRoute(r *http.Request, hint string) error {
	return holdfast.Errorf(holdfast.KindNotFound, "request", "the API has no route %s", holdfast.Quote(r.URL.Path)).WithHint("%s", hint)
}

func noQuery(r *http.Request) error {
	return holdfast.Errorf(holdfast.KindInvalid, "request", "the URL path %s takes no query", holdfast.Quote(r.URL.Path)).WithHint("leave out the ? of the URL and what follows")
}

func unclean(r *http.Request) error {
	return holdfast.Errorf(holdfast.KindInvalid, "request", "the URL path %s contains //, /./ or /../", holdfast.Quote(r.URL.EscapedPath())).
		WithHint("leave //, /./ and /../ out of the URL; an absolute path of a file starts with %%2F")
}

// cleanPath reports whether the router would accept the URL path as it is, without a redirect.
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

// refuseUnknown answers a request that matches no route: 405 if other methods are allowed for its
// path, as the router would, otherwise 404 with the hint.
func refuseUnknown(routes *http.ServeMux, w http.ResponseWriter, r *http.Request, hint string) {
	probe := statusProbe{header: http.Header{}}
	routes.ServeHTTP(&probe, r)
	if probe.status != http.StatusMethodNotAllowed {
		problem.Of(noRoute(r, hint)).Write(w)
		return
	}
	allow := probe.header.Get("Allow")
	p := problem.Of(holdfast.Errorf(holdfast.KindInvalid, "request", "the method %s is not allowed for the URL path %s",
		holdfast.Quote(r.Method), holdfast.Quote(r.URL.Path)).WithHint("use %s", allow))
	p.Status, p.Title = http.StatusMethodNotAllowed, http.StatusText(http.StatusMethodNotAllowed)
	w.Header().Set("Allow", allow)
	p.Write(w)
}

// statusProbe is a response writer that stores the status and headers and discards the body.
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

// Metrics returns a handler that serves GET /metrics with h, without a token, and no other route. It
// is for a listener of its own.
func Metrics(h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		switch _, pattern := mux.Handler(r); {
		case !cleanPath(r.URL.EscapedPath()):
			err = unclean(r)
		case pattern == "":
			refuseUnknown(mux, w, r, "this address serves GET /metrics only")
			return
		case r.URL.RawQuery != "":
			err = noQuery(r)
		default:
			err = body.CheckNone(r)
		}
		if err != nil {
			problem.Of(err).Write(w)
			return
		}
		h.ServeHTTP(w, r)
	})
}
