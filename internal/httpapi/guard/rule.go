package guard

import "github.com/holdfast-run/holdfast"

// Public is the scope of routes that need no token, because their answers contain no private data.
const Public holdfast.Scope = "public"

// Rule has the requirements of a route for its requests. A route with the zero Rule refuses every
// request.
type Rule struct {
	// Scope is the scope that the caller's key must cover.
	Scope holdfast.Scope
	// HonoursKey is true if requests with the same Idempotency-Key are carried out once. Any
	// other POST or PATCH refuses the header, since accepting it would promise that, with
	// WhyNoKey as the hint.
	HonoursKey bool
	WhyNoKey   string
	// EngineChecksTrust is true if the engine, not the guard, compares the trust of the session
	// with the caller's maximum.
	EngineChecksTrust bool
	// Query is true if the route checks its query itself; any other route refuses a query.
	Query bool
	// MaxBody is the size in bytes of the largest body; 0 refuses every body.
	MaxBody int64
	// Streamed is true if the route never holds a large part of the body in memory.
	Streamed bool
}
