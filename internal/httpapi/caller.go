package httpapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// caller is who sent a request.
type caller struct {
	// owner holds the owner token and may do everything.
	owner bool
	key   holdfast.Key
}

type callerKey struct{}

// callerOf is who sent the request of ctx; nobody, who may do nothing, where the
// guard has not looked.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

func (c caller) covers(need holdfast.Scope) bool { return c.owner || c.key.Covers(need) }

// name is how the record of a change names who asked for it; empty for nobody.
func (c caller) name() string {
	switch {
	case c.owner:
		return "owner"
	case c.key.ID != "":
		return "key " + string(c.key.ID)
	}
	return ""
}

// stranger reports whether a request carried no valid token.
func (c caller) stranger() bool { return c.name() == "" }

// maxTrust is the highest trust that the caller may have; empty for the owner.
func (c caller) maxTrust() holdfast.Trust {
	switch {
	case c.owner:
		return ""
	case c.key.MaxTrust == holdfast.Trusted:
		return holdfast.Trusted
	}
	return holdfast.Untrusted
}

// authenticate finds out who sent a request.
func (a *API) authenticate(r *http.Request) (caller, error) {
	const hint = "set HOLDFAST_TOKEN to a key (holdfast key create), or to the token that serve wrote to its data directory"
	auth := r.Header.Values("Authorization")
	switch {
	case len(auth) == 0 || auth[0] == "":
		return caller{}, holdfast.Errorf(holdfast.KindUnauthenticated, "request", "the request carries no token").WithHint(hint)
	case len(auth) > 1:
		return caller{}, holdfast.Errorf(holdfast.KindUnauthenticated, "request", "the request carries %d tokens", len(auth)).WithHint(hint)
	}
	scheme, token, _ := strings.Cut(auth[0], " ")
	token = strings.TrimSpace(token)
	sum := sha256.Sum256([]byte(token))
	// Hashing first makes the comparison take the same time for every length.
	if a.cfg.Token != "" && strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], a.token[:]) == 1 {
		return caller{owner: true}, nil
	}
	if strings.EqualFold(scheme, "Bearer") {
		if k, err := a.cfg.Keys.Check(r.Context(), token); err == nil {
			return caller{key: k}, nil
		}
	}
	return caller{}, holdfast.Errorf(holdfast.KindUnauthenticated, "request", "the token is not valid here").WithHint(hint)
}

// recognize identifies the sender of a request to a public route. An invalid token
// counts as no token there: probes may carry an old one.
func (a *API) recognize(r *http.Request) caller {
	if r.Header.Get("Authorization") == "" {
		return caller{}
	}
	who, err := a.authenticate(r)
	if err != nil {
		return caller{}
	}
	return who
}

// authorize refuses what a caller's scopes do not cover.
func authorize(c caller, need holdfast.Scope, r *http.Request) error {
	if c.covers(need) {
		return nil
	}
	return holdfast.Errorf(holdfast.KindDenied, "request", "%s %s needs the scope %s, which key %s lacks",
		r.Method, holdfast.Quote(r.URL.Path), need, c.key.ID).WithHint("holdfast key create --scope %s makes one that has it", need)
}

// engineLimits are the routes of a session where the engine compares trust: it allows
// some changes of a session with more trust than the key, such as its title.
//
//nolint:gochecknoglobals // a table
var engineLimits = map[string]bool{
	"PATCH /v1/sessions/{id}":      true,
	"POST /v1/sessions/{id}/turns": true,
}

// held refuses all requests but reads while the server takes no work. It looks at the
// pattern, so that it refuses new routes by default.
func (a *API) held(r *http.Request, pattern string) error {
	switch scope := routeScopes[pattern]; {
	case a.cfg.Held == nil, scope == public, scope == holdfast.ScopeRead:
		return nil
	case scope == holdfast.ScopeAdmin && r.Method == http.MethodGet:
		return nil
	}
	return a.cfg.Held
}

// limited refuses a request that changes a session, or works in its box, if the
// session's trust is above the caller's. It looks at the pattern, so that it limits new
// routes by default.
func (a *API) limited(ctx context.Context, r *http.Request, pattern string) error {
	_, route, _ := strings.Cut(pattern, " ")
	if !strings.HasPrefix(route, "/v1/sessions/{id}") || routeScopes[pattern] == holdfast.ScopeRead || engineLimits[pattern] {
		return nil
	}
	segment, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/sessions/"), "/")
	id, err := holdfast.ParseSessionID(segment)
	if err != nil {
		return err
	}
	return a.within(ctx, id)
}

// within refuses to act on a session whose trust is above the caller's.
func (a *API) within(ctx context.Context, id holdfast.SessionID) error {
	most := callerOf(ctx).maxTrust()
	if most == "" || most == holdfast.Trusted {
		return nil
	}
	s, err := a.cfg.Sessions.Session(ctx, id)
	if err != nil {
		return err
	}
	if s.Trust.Exceeds(most) {
		return holdfast.Errorf(holdfast.KindDenied, "request", "session %s is %s, above this key's maximum, which is %s", id, s.Trust, most).
			WithHint("holdfast key create --max-trust %s makes a key for it", s.Trust)
	}
	return nil
}
