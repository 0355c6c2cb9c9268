package guard

import "github.com/holdfast-run/holdfast"

// Public is the scope of routes that need no token, because they show nothing that
// belongs to anybody.
const Public holdfast.Scope = "public"

// Rule is what a route asks of its requests. The zero Rule serves nobody.
type Rule struct {
	// Scope is the scope that a key must cover.
	Scope holdfast.Scope
	// HonoursKey says that a repeated request with the same Idempotency-Key is done once.
	// Any other POST or PATCH refuses the header, since accepting it would promise the
	// same, and tells the sender WhyNoKey.
	HonoursKey bool
	WhyNoKey   string
	// EngineChecksTrust leaves it to the engine to compare the trust of the session with
	// the caller's.
	EngineChecksTrust bool
	// Query says that the route checks its query itself; any other route refuses one.
	Query bool
	// MaxBody is the size in bytes of the largest body; 0 refuses every body.
	MaxBody int64
	// Streamed says that no large part of the body is ever in memory.
	Streamed bool
}
