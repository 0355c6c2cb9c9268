package holdfast

import "time"

// SecretName names a credential of the server: a lower-case letter, then up to 63
// lower-case letters, digits, dashes or underscores.
type SecretName string

// ParseSecretName accepts the name of a credential.
func ParseSecretName(s string) (SecretName, error) {
	ok := s != "" && len(s) <= 64 && s[0] >= 'a' && s[0] <= 'z'
	for i := 1; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_'
	}
	if !ok {
		// What is no name may be the value, in the wrong place: it is not repeated.
		return "", Errorf(KindInvalid, "secret", "that is not the name of a secret").
			WithHint("use lower-case letters, digits, - and _, as in: holdfast secret set anthropic")
	}
	return SecretName(s), nil
}

// Secret is a credential of the server as everybody may see it: its value is nowhere
// told.
type Secret struct {
	Name SecretName `json:"name"`
	// KeyID names the root key that it is sealed under.
	KeyID     string    `json:"key_id"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// SetSecret is the body of PUT /v1/secrets/{name}.
type SetSecret struct {
	Value []byte `json:"value" doc:"base64, of at most 64 KiB."`
}
