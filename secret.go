package holdfast

import "time"

// SecretName names a credential of the server: a lower-case letter, then up to 63
// lower-case letters, digits, dashes or underscores.
type SecretName string

func (SecretName) parse(s string) (string, error) {
	ok := s != "" && len(s) <= 64 && s[0] >= 'a' && s[0] <= 'z'
	for i := 1; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_'
	}
	if !ok {
		// The error does not quote s: it may be the secret's value, given in the wrong place.
		return "", Errorf(KindInvalid, "secret", "the given name is not a valid name of a secret").
			WithHint("use lower-case letters, digits, - and _, as in: holdfast secret set anthropic")
	}
	return s, nil
}

// Secret describes a credential that the server stores. It never contains the
// credential's value.
type Secret struct {
	Name SecretName `json:"name"`
	// KeyID names the root key that the value is encrypted under.
	KeyID     string    `json:"key_id"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// SetSecret is the body of PUT /v1/secrets/{name}.
type SetSecret struct {
	Value []byte `json:"value" doc:"base64, of at most 64 KiB."`
}
