package holdfast

import (
	"slices"
	"time"
)

// KeyID names an API key: 16 lower-case hex digits. It is no secret.
type KeyID string

// ParseKeyID accepts the id of a key.
func ParseKeyID(s string) (KeyID, error) {
	ok := len(s) == 16
	for i := 0; ok && i < len(s); i++ {
		ok = s[i] >= '0' && s[i] <= '9' || s[i] >= 'a' && s[i] <= 'f'
	}
	if !ok {
		return "", Errorf(KindInvalid, "key id", "%s is not a key id", Quote(s)).WithHint("holdfast key list shows them")
	}
	return KeyID(s), nil
}

// Scope says what a key may do. Each holds those before it.
type Scope string

// The scopes: look at sessions; work with them and in their boxes; rule over
// agents, boxes and keys.
const (
	ScopeRead  Scope = "read"
	ScopeWrite Scope = "write"
	ScopeAdmin Scope = "admin"
)

// ParseScope accepts a scope.
func ParseScope(s string) (Scope, error) {
	if slices.Contains(Words[Scope](), Scope(s)) {
		return Scope(s), nil
	}
	return "", Errorf(KindInvalid, "scope", "%s is not a scope", Quote(s)).WithHint("use read, write or admin")
}

// Covers reports whether s holds what need asks; an unknown scope is not held.
func (s Scope) Covers(need Scope) bool {
	have, want := slices.Index(Words[Scope](), s), slices.Index(Words[Scope](), need)
	return want >= 0 && have >= want
}

// Key is an API key as everybody may see it; its secret is told once, when it is
// made.
type Key struct {
	ID     KeyID   `json:"id"`
	Name   string  `json:"name"`
	Scopes []Scope `json:"scopes"`
	// MaxTrust is the highest trust that sessions get through this key.
	MaxTrust  Trust     `json:"max_trust"`
	CreatedAt time.Time `json:"created_at"`
	// LastUsedAt is right within a few minutes; nil for a key never used.
	LastUsedAt *time.Time `json:"last_used_at,omitempty"`
	RevokedAt  *time.Time `json:"revoked_at,omitempty"`
}

// Covers reports whether one of the key's scopes holds what need asks.
func (k Key) Covers(need Scope) bool {
	return slices.ContainsFunc(k.Scopes, func(s Scope) bool { return s.Covers(need) })
}

// CreateKey is the body of POST /v1/keys. Empty fields take the defaults: scope
// write, maximum trust untrusted.
type CreateKey struct {
	Name     string   `json:"name,omitempty" doc:"For people."`
	Scopes   []string `json:"scopes,omitempty" doc:"What it may do; each holds those before it; absent: write."`
	MaxTrust string   `json:"max_trust,omitempty" doc:"The highest trust that sessions get through it; absent: untrusted."`
}
