package holdfast

import (
	"slices"
	"time"
)

// KeyID names an API key: 16 lower-case hex digits. The id is not secret.
type KeyID string

func (KeyID) parse(s string) (string, error) {
	ok := len(s) == 16
	for i := 0; ok && i < len(s); i++ {
		ok = s[i] >= '0' && s[i] <= '9' || s[i] >= 'a' && s[i] <= 'f'
	}
	if !ok {
		return "", Errorf(KindInvalid, "key id", "%s is not the id of an API key", Quote(s)).WithHint("list the keys with: holdfast key list")
	}
	return s, nil
}

// Scope says what an API key may do: read, write or admin. Write includes read, and
// admin includes both.
type Scope string

// The scopes of API keys. Read: read sessions. Write: use sessions and their boxes. Admin: manage the
// server, such as its agents, workspaces, boxes, keys, secrets and backups.
const (
	ScopeRead  Scope = "read"
	ScopeWrite Scope = "write"
	ScopeAdmin Scope = "admin"
)

func (Scope) parse(s string) (string, error) {
	return parseWord[Scope]("scope", "the scope of an API key", s)
}

// Covers reports whether s includes need; no scope includes an unknown one.
func (s Scope) Covers(need Scope) bool {
	have, want := slices.Index(Words[Scope](), s), slices.Index(Words[Scope](), need)
	return want >= 0 && have >= want
}

// Key is an API key without its secret, which is shown only once, in the answer that
// creates the key.
type Key struct {
	ID     KeyID   `json:"id"`
	Name   string  `json:"name"`
	Scopes []Scope `json:"scopes"`
	// MaxTrust is the highest trust that sessions made with this key can have.
	MaxTrust  Trust     `json:"max_trust"`
	CreatedAt time.Time `json:"created_at"`
	// LastUsedAt is when the key was last used, accurate to a few minutes; nil if never.
	LastUsedAt *time.Time `json:"last_used_at,omitempty"`
	RevokedAt  *time.Time `json:"revoked_at,omitempty"`
}

// Covers reports whether one of the key's scopes includes need.
func (k Key) Covers(need Scope) bool {
	return slices.ContainsFunc(k.Scopes, func(s Scope) bool { return s.Covers(need) })
}

// CreateKey is the body of POST /v1/keys. Defaults for empty fields: scope write,
// maximum trust untrusted.
type CreateKey struct {
	Name     string   `json:"name,omitempty" doc:"For people."`
	Scopes   []string `json:"scopes,omitempty" doc:"What it may do; each holds those before it; absent: write."`
	MaxTrust string   `json:"max_trust,omitempty" doc:"The highest trust that sessions get through it; absent: untrusted."`
}
