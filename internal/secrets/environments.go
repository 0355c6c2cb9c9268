package secrets

import "github.com/holdfast-run/holdfast"

// Environment is the sealed environment of a workspace, or of a session if Workspace is empty.
type Environment struct {
	Session   holdfast.SessionID
	Workspace holdfast.Slug
	Sealed    []byte
	// Was is the sealed environment before it was wrapped again.
	Was []byte
}

// boundTo returns the context for which the environment is sealed.
func (e Environment) boundTo() string {
	if e.Workspace != "" {
		return "the environment of workspace " + string(e.Workspace)
	}
	return "the environment of session " + string(e.Session)
}

// Hold keeps the root key from being replaced until release is called. A caller that seals an
// environment holds the key until the session or workspace is stored.
func (v *Vault) Hold() (release func()) {
	v.sealing.RLock()
	return v.sealing.RUnlock
}

// SealEnvironment encrypts the environment of a session. The caller holds the key with Hold.
func (v *Vault) SealEnvironment(id holdfast.SessionID, plain []byte) ([]byte, error) {
	return v.ring.Seal(Environment{Session: id}.boundTo(), plain)
}

// OpenEnvironment decrypts the environment of a session, for use within the server.
func (v *Vault) OpenEnvironment(id holdfast.SessionID, sealed []byte) ([]byte, error) {
	return openEnvironment(v.ring, Environment{Session: id, Sealed: sealed})
}

// SealWorkspace encrypts the environment of a workspace. The caller holds the key with Hold.
func (v *Vault) SealWorkspace(id holdfast.Slug, plain []byte) ([]byte, error) {
	return v.ring.Seal(Environment{Workspace: id}.boundTo(), plain)
}

// OpenWorkspace decrypts the environment of a workspace, for use within the server.
func (v *Vault) OpenWorkspace(id holdfast.Slug, sealed []byte) ([]byte, error) {
	return openEnvironment(v.ring, Environment{Workspace: id, Sealed: sealed})
}

// CheckEnvironment returns an error if a keyring cannot open an environment.
func CheckEnvironment(ring Keyring, e Environment) error {
	_, err := openEnvironment(ring, e)
	return err
}

func openEnvironment(ring Keyring, e Environment) ([]byte, error) {
	plain, err := ring.Open(e.boundTo(), e.Sealed)
	if e.Workspace != "" {
		return plain, hinted(err, "set all its values again at once: holdfast workspace update %s --env NAME=VALUE, or remove them: --unset-env NAME", e.Workspace)
	}
	return plain, hinted(err, "give the session up with its log: holdfast session delete %s --purge", e.Session)
}
