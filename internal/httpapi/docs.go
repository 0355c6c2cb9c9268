package httpapi

import (
	"net/http"
	"strings"

	"github.com/holdfast-run/holdfast/internal/httpapi/guard"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
)

// docRoutes registers the public routes of the OpenAPI document, of the page made of it, and of the path /.
func (a *API) docRoutes() {
	a.mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(a.doc.JSON) // ignore the error: the client may have disconnected
	})
	a.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			http.Redirect(w, r, "/docs", http.StatusSeeOther)
			return
		}
		problem.Of(guard.NoRoute(r)).Write(w)
	})
	a.mux.HandleFunc("GET /docs", func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
		_, _ = w.Write(a.doc.Page) // ignore the error: the client may have disconnected
	})
}
