package secrets

import "github.com/holdfast-run/holdfast"

// Environment is the sealed environment of a session.
type Environment struct {
	Session holdfast.SessionID
	Sealed  []byte
	// Was is the sealed environment before it was wrapped again.
	Was []byte
}

// boundTo returns the context for which the environment of a session is sealed.
func boundTo(id holdfast.SessionID) string { return "the environment of session " + string(id) }

// Hold keeps the root key from being replaced until release is called. A caller that seals an
// environment holds the key until the session is stored.
func (v *Vault) Hold() (release func()) {
	v.sealing.RLock()
	return v.sealing.RUnlock
}

// SealEnvironment encrypts the environment of a session. The caller holds the key with Hold.
func (v *Vault) SealEnvironment(id holdfast.SessionID, plain []byte) ([]byte, error) {
	return v.ring.Seal(boundTo(id), plain)
}

// OpenEnvironment decrypts the environment of a session, for use within the server.
func (v *Vault) OpenEnvironment(id holdfast.SessionID, sealed []byte) ([]byte, error) {
	return openEnvironment(v.ring, id, sealed)
}

// CheckEnvironment returns an error if a keyring cannot open the environment of a session.
func CheckEnvironment(ring Keyring, id holdfast.SessionID, sealed []byte) error {
	_, err := openEnvironment(ring, id, sealed)
	return err
}

func openEnvironment(ring Keyring, id holdfast.SessionID, sealed []byte) ([]byte, error) {
	plain, err := ring.Open(boundTo(id), sealed)
	return plain, hinted(err, "give the session up: holdfast session end %s", id)
}
