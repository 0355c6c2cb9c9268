package guard

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
)

// Caller is the sender of a request. The zero Caller is one without a valid token; it may use
// public routes only.
type Caller struct {
	// owner is true for the holder of the owner token, who may do everything.
	owner bool
	key   holdfast.Key
}

type callerKey struct{}

// CallerOf returns the sender of the request whose context is ctx; the zero Caller if ctx is not
// from a request that passed the guard.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// KeyOf returns the id of the API key with which the request of ctx was sent; empty for the owner and
// for a request without a valid token.
func KeyOf(ctx context.Context) holdfast.KeyID { return CallerOf(ctx).key.ID }

// Name returns the caller's name for the record of a change, such as "owner" or "key 5f1c…"; empty
// without a valid token.
func (c Caller) Name() string {
	switch {
	case c.owner:
		return "owner"
	case c.key.ID != "":
		return "key " + string(c.key.ID)
	}
	return ""
}

// Stranger reports whether the caller sent no valid token.
func (c Caller) Stranger() bool { return c.Name() == "" }

// Covers reports whether the caller may do what needs a scope.
func (c Caller) Covers(need holdfast.Scope) bool { return c.owner || c.key.Covers(need) }

// MaxTrust returns the highest trust of the sessions that the caller may change; empty for the
// owner, who has no limit.
func (c Caller) MaxTrust() holdfast.Trust {
	switch {
	case c.owner:
		return ""
	case c.key.MaxTrust == holdfast.Trusted:
		return holdfast.Trusted
	}
	return holdfast.Untrusted
}

// identify returns the sender of a request. Unless the route is public, it refuses a request without a
// valid token, over the rate limit, or without the scope that the route needs. A path below /v1
// needs a token even if it has no route; other paths without a route need none.
func (g *Guard) identify(r *http.Request, pattern string) (Caller, error) {
	need := g.cfg.Rules[pattern].Scope
	if need == Public {
		return g.recognize(r), nil
	}
	if pattern == "" && !strings.HasPrefix(r.URL.Path, "/v1/") && r.URL.Path != "/v1" {
		return Caller{}, nil
	}
	who, err := g.authenticate(r)
	if err != nil {
		// Only failed requests are limited by address, so that a valid token is never locked out by
		// others at the same address. Tokens are too long to be guessed at any rate.
		if wait := g.failures.take(address(r), g.cfg.Now()); wait > 0 {
			err = tooMany("requests without a valid token from this address", wait)
		}
		if g.refusals.take("", g.cfg.Now()) == 0 {
			g.cfg.Log.Warn("a request without a valid token was refused", "from", address(r), "path", holdfast.Quote(r.URL.Path), "why", err)
		}
		return who, err
	}
	if wait := g.rates.take(string(who.key.ID), g.cfg.Now()); wait > 0 {
		return who, tooMany("requests with this key", wait)
	}
	switch {
	case pattern == "":
		return who, nil
	case need == "":
		return who, holdfast.Errorf(holdfast.KindInternal, "request", "the API route %s has no scope that a key would need for it", holdfast.Quote(pattern))
	}
	return who, authorize(who, need, r)
}

// authenticate returns the sender to whom the token of a request belongs; unauthenticated if the
// token is missing or not valid.
func (g *Guard) authenticate(r *http.Request) (Caller, error) {
	const hint = "set HOLDFAST_TOKEN to a key (holdfast key create), or to the token that serve wrote to its data directory"
	auth := r.Header.Values("Authorization")
	switch {
	case len(auth) == 0 || auth[0] == "":
		return Caller{}, holdfast.Errorf(holdfast.KindUnauthenticated, "request", "the request carries no token").WithHint(hint)
	case len(auth) > 1:
		return Caller{}, holdfast.Errorf(holdfast.KindUnauthenticated, "request", "the request carries %d tokens instead of one", len(auth)).WithHint(hint)
	}
	scheme, token, _ := strings.Cut(auth[0], " ")
	token = strings.TrimSpace(token)
	sum := sha256.Sum256([]byte(token))
	// Hashing first makes the comparison take the same time for every length.
	if g.cfg.Access.Token != "" && strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1 {
		return Caller{owner: true}, nil
	}
	if strings.EqualFold(scheme, "Bearer") {
		if k, err := g.cfg.Keys.Check(r.Context(), token); err == nil {
			return Caller{key: k}, nil
		}
	}
	return Caller{}, holdfast.Errorf(holdfast.KindUnauthenticated, "request", "the token of the request is not valid for this server").WithHint(hint)
}

// recognize returns the sender of a request to a public route. There an invalid token is treated as
// no token, because probes may send an old one.
func (g *Guard) recognize(r *http.Request) Caller {
	if r.Header.Get("Authorization") == "" {
		return Caller{}
	}
	who, err := g.authenticate(r)
	if err != nil {
		return Caller{}
	}
	return who
}

// makeKey begins a command that makes an API key. It is sent with the owner's token of the data directory, because the
// caller's own key cannot make a key that may do more.
const makeKey = "use another key, which the server's owner can make on its machine: env -u HOLDFAST_TOKEN holdfast key create --context local "

// authorize refuses a request if the caller's scopes do not cover the scope need.
func authorize(c Caller, need holdfast.Scope, r *http.Request) error {
	if c.Covers(need) {
		return nil
	}
	return holdfast.Errorf(holdfast.KindDenied, "request", "the request %s %s needs the scope %s, which the API key %s lacks",
		r.Method, holdfast.Quote(r.URL.Path), need, c.key.ID).WithHint(makeKey+"--scope %s", need)
}

// checkHeld refuses all requests except reads if the server accepts no work (Held is set). It
// decides by the scope of the route, so that it refuses new routes by default.
func (g *Guard) checkHeld(r *http.Request, rule Rule) error {
	switch {
	case g.cfg.Held == nil, rule.Scope == Public, rule.Scope == holdfast.ScopeRead:
		return nil
	case rule.Scope == holdfast.ScopeAdmin && r.Method == http.MethodGet:
		return nil
	}
	return g.cfg.Held
}

// checkTrust refuses a request that changes a session, or works in its box, if the session's trust
// is above the caller's maximum. It decides by the pattern and the scope of the route, so that it
// limits new routes by default.
func (g *Guard) checkTrust(r *http.Request, pattern string, rule Rule) error {
	_, route, _ := strings.Cut(pattern, " ")
	if !strings.HasPrefix(route, "/v1/sessions/{id}") || rule.Scope == holdfast.ScopeRead || rule.EngineChecksTrust {
		return nil
	}
	segment, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/sessions/"), "/")
	id, err := holdfast.Parse[holdfast.SessionID](segment)
	if err != nil {
		return err
	}
	return g.Within(r.Context(), id)
}

// Within returns an error if the trust of the session with the given id is above the highest trust that the caller of
// the request of ctx may change.
func (g *Guard) Within(ctx context.Context, id holdfast.SessionID) error {
	most := CallerOf(ctx).MaxTrust()
	if most == "" || most == holdfast.Trusted {
		return nil
	}
	s, err := g.cfg.Sessions.Session(ctx, id)
	if err != nil {
		return err
	}
	if s.Trust.Exceeds(most) {
		return holdfast.Errorf(holdfast.KindDenied, "request", "the trust of session %s is %s, above the API key's maximum trust, which is %s", id, s.Trust, most).
			WithHint(makeKey+"--max-trust %s", s.Trust)
	}
	return nil
}

// keyHeader is the header that identifies a request, so that the request is carried out once
// however often it is sent.
const keyHeader = "Idempotency-Key"

// checkKey refuses a POST or PATCH with an Idempotency-Key that is not well-formed, or that the
// route would not honour.
func checkKey(r *http.Request, pattern string, rule Rule) error {
	acts := r.Method == http.MethodPost || r.Method == http.MethodPatch
	values := r.Header.Values(keyHeader)
	if !acts || len(values) == 0 {
		return nil
	}
	if !rule.HonoursKey {
		hint := "leave the header out"
		if rule.WhyNoKey != "" {
			hint += ": " + rule.WhyNoKey
		}
		return holdfast.Errorf(holdfast.KindInvalid, "request", "Idempotency-Key %s was sent, but the route %s accepts no such key", holdfast.Quote(values[0]), pattern).WithHint("%s", hint)
	}
	if len(values) > 1 {
		return holdfast.Errorf(holdfast.KindInvalid, "request", "the request has %d Idempotency-Key headers instead of one; the second is %s", len(values), holdfast.Quote(values[1])).
			WithHint("send one Idempotency-Key header")
	}
	key := values[0]
	if len(key) > 200 || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return holdfast.Errorf(holdfast.KindInvalid, "request", "Idempotency-Key %s is not a key of up to 200 printable characters", holdfast.Quote(key)).
			WithHint("use up to 200 printable characters without spaces, such as a UUID")
	}
	return nil
}

// tooMany returns the refusal of a request over a rate limit. what describes the limited requests;
// wait is the time until the next one is allowed.
func tooMany(what string, wait time.Duration) error {
	return problem.After(wait, holdfast.Errorf(holdfast.KindBusy, "request", "too many %s", what).WithHint("try again in %s", wait.Round(time.Millisecond)))
}
