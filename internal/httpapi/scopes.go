package httpapi

import (
	"maps"
	"slices"

	"github.com/holdfast-run/holdfast"
)

// public marks a route that needs no token: it holds nothing of anybody's.
const public holdfast.Scope = "public"

// Routes are the patterns of all routes, for whoever counts them.
func Routes() []string { return slices.Sorted(maps.Keys(routeScopes)) }

// routeScopes says what each route needs, by its pattern in the router. A route
// without a line here is served to nobody, and a test names it.
//
// Reading files needs write: it starts the session's box, and wakes a session
// that is paused.
//
//nolint:gochecknoglobals // a table
var routeScopes = map[string]holdfast.Scope{
	"GET /healthz":      public,
	"GET /readyz":       public,
	"GET /openapi.json": public,
	"GET /docs":         public,
	"GET /{$}":          public,

	"GET /metrics": holdfast.ScopeRead,

	"GET /v1/agents":                 holdfast.ScopeRead,
	"POST /v1/agents":                holdfast.ScopeAdmin,
	"GET /v1/agents/{name}":          holdfast.ScopeRead,
	"PATCH /v1/agents/{name}":        holdfast.ScopeAdmin,
	"DELETE /v1/agents/{name}":       holdfast.ScopeAdmin,
	"GET /v1/agents/{name}/versions": holdfast.ScopeRead,

	"GET /v1/sessions":                 holdfast.ScopeRead,
	"POST /v1/sessions":                holdfast.ScopeWrite,
	"GET /v1/sessions/{id}":            holdfast.ScopeRead,
	"GET /v1/sessions/{id}/agents":     holdfast.ScopeRead,
	"PATCH /v1/sessions/{id}":          holdfast.ScopeWrite,
	"DELETE /v1/sessions/{id}":         holdfast.ScopeWrite,
	"POST /v1/sessions/{id}/pause":     holdfast.ScopeWrite,
	"POST /v1/sessions/{id}/resume":    holdfast.ScopeWrite,
	"POST /v1/sessions/{id}/end":       holdfast.ScopeWrite,
	"POST /v1/sessions/{id}/interrupt": holdfast.ScopeWrite,

	"POST /v1/sessions/{id}/turns":          holdfast.ScopeWrite,
	"GET /v1/sessions/{id}/turns":           holdfast.ScopeRead,
	"GET /v1/sessions/{id}/turns/{turn}":    holdfast.ScopeRead,
	"GET /v1/sessions/{id}/usage":           holdfast.ScopeRead,
	"GET /v1/sessions/{id}/events":          holdfast.ScopeRead,
	"GET /v1/sessions/{id}/transcript":      holdfast.ScopeRead,
	"POST /v1/sessions/{id}/policy/explain": holdfast.ScopeRead,

	"GET /v1/server": holdfast.ScopeRead,
	"GET /v1/models": holdfast.ScopeRead,
	"GET /v1/search": holdfast.ScopeRead,

	"GET /v1/sessions/{id}/files":              holdfast.ScopeWrite,
	"GET /v1/sessions/{id}/files/{path...}":    holdfast.ScopeWrite,
	"PUT /v1/sessions/{id}/files":              holdfast.ScopeWrite,
	"DELETE /v1/sessions/{id}/files":           holdfast.ScopeWrite,
	"PUT /v1/sessions/{id}/files/{path...}":    holdfast.ScopeWrite,
	"DELETE /v1/sessions/{id}/files/{path...}": holdfast.ScopeWrite,
	"GET /v1/sessions/{id}/tree":               holdfast.ScopeWrite,
	"GET /v1/sessions/{id}/tree/{path...}":     holdfast.ScopeWrite,
	"PUT /v1/sessions/{id}/tree":               holdfast.ScopeWrite,
	"PUT /v1/sessions/{id}/tree/{path...}":     holdfast.ScopeWrite,
	"PUT /v1/sessions/{id}/import":             holdfast.ScopeWrite,
	"GET /v1/sessions/{id}/diff":               holdfast.ScopeWrite,
	"POST /v1/sessions/{id}/exec":              holdfast.ScopeWrite,
	"GET /v1/sessions/{id}/terminal":           holdfast.ScopeWrite,

	"GET /v1/containers":        holdfast.ScopeRead,
	"POST /v1/containers/stop":  holdfast.ScopeAdmin,
	"POST /v1/containers/prune": holdfast.ScopeAdmin,

	// Who works with sessions may also let them do what they ask for.
	"GET /v1/approvals":       holdfast.ScopeRead,
	"GET /v1/approvals/{id}":  holdfast.ScopeRead,
	"POST /v1/approvals/{id}": holdfast.ScopeWrite,

	"GET /v1/keys":         holdfast.ScopeAdmin,
	"POST /v1/keys":        holdfast.ScopeAdmin,
	"DELETE /v1/keys/{id}": holdfast.ScopeAdmin,

	"GET /v1/secrets":            holdfast.ScopeAdmin,
	"PUT /v1/secrets/{name}":     holdfast.ScopeAdmin,
	"DELETE /v1/secrets/{name}":  holdfast.ScopeAdmin,
	"POST /v1/secret-key/rotate": holdfast.ScopeAdmin,

	"GET /v1/audit":      holdfast.ScopeAdmin,
	"GET /v1/audit/head": holdfast.ScopeAdmin,
}
