// Package secrets is the credential store: named values, such as the keys of model
// providers, and the environments of sessions and workspaces, both encrypted at rest under one root key.
//
// The app makes the one Vault; the API sets, lists and rotates secrets, the broker and the providers
// read values, the engine and the workspaces seal and open environments. It imports the vocabulary; the store and the
// keyring are interfaces to it. Invariants: a value leaves the store only through Value,
// OpenEnvironment or OpenWorkspace, for use within the server (I-22); a root key is removed only when no stored
// value is sealed with it.
package secrets

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Record is a secret as it is stored, with its encrypted value.
type Record struct {
	holdfast.Secret
	Sealed []byte
}

// Rewrapped is a record whose sealed value was wrapped with a new root key.
type Rewrapped struct {
	Record
	// Was is the sealed value before; the stored one must still equal it.
	Was []byte
}

// Store stores the records of secrets and the sealed environments of sessions and workspaces. Each method is one
// transaction.
type Store interface {
	// Secrets returns all records, sorted by name.
	Secrets(ctx context.Context) ([]Record, error)
	// Secret returns one record; not_found for an unknown name.
	Secret(ctx context.Context, name holdfast.SecretName) (Record, error)
	// PutSecret stores a record, or replaces the one with its name, whose CreatedAt stays.
	PutSecret(ctx context.Context, r Record) error
	// RemoveSecret removes a record; not_found for an unknown name.
	RemoveSecret(ctx context.Context, name holdfast.SecretName) error
	// RewrapSecrets replaces the sealed values of all the records or of none: it is a conflict if
	// one of them no longer equals Was.
	RewrapSecrets(ctx context.Context, wrapped []Rewrapped) error
	// Environments returns the next stored environments after the given one: those of sessions in
	// order of their ids, then those of workspaces in order of theirs. The zero Environment starts
	// at the first; an empty list is the end.
	Environments(ctx context.Context, after Environment) ([]Environment, error)
	// RewrapEnvironments replaces sealed environments. It skips each one that no longer equals its Was: its
	// session was deleted, or the environment was changed meanwhile.
	RewrapEnvironments(ctx context.Context, wrapped []Environment) error
}

// Keyring encrypts and decrypts values; see seal.Keyring.
type Keyring interface {
	KeyID() string
	Seal(context string, plain []byte) ([]byte, error)
	Open(context string, sealed []byte) ([]byte, error)
	Rewrap(context string, sealed []byte) ([]byte, error)
	Renew() error
	Retire() error
}

// MaxValue is the largest value of a secret, in bytes.
const MaxValue = 64 << 10

// Vault is the credential store. Safe for concurrent use.
type Vault struct {
	store Store
	ring  Keyring
	now   func() time.Time

	// writing is held by methods that change secrets, so that none is sealed under a root key that
	// Rotate is about to remove.
	writing sync.Mutex
	// sealing is held for reading from the sealing of an environment until its session is stored, and
	// for writing while the root key changes. So no environment is stored under a former root key once
	// Rotate has begun to wrap those that are stored.
	sealing sync.RWMutex
}

// New returns a vault over a store and a keyring.
func New(store Store, ring Keyring, now func() time.Time) *Vault {
	return &Vault{store: store, ring: ring, now: now}
}

// bound returns the context for which the value of a secret is sealed, so that the sealed value of
// one secret cannot be opened as that of another.
func bound(name holdfast.SecretName) string { return "the secret " + string(name) }

// Check returns an error if a keyring cannot open the sealed value of a secret.
func Check(ring Keyring, name holdfast.SecretName, sealed []byte) error {
	_, err := open(ring, name, sealed)
	return err
}

func open(ring Keyring, name holdfast.SecretName, sealed []byte) ([]byte, error) {
	value, err := ring.Open(bound(name), sealed)
	return value, hinted(err, "set it again: holdfast secret set %s", name)
}

// hinted adds a hint to an error. If the error has a hint already, both are shown, joined by ";
// or".
func hinted(err error, format string, args ...any) error {
	var e *holdfast.Error
	switch {
	case !errors.As(err, &e):
		return err
	case e.Hint == "":
		return e.WithHint(format, args...)
	}
	return e.WithHint("%s; or "+format, slices.Concat([]any{e.Hint}, args)...)
}

// Set stores a secret or replaces its value.
func (v *Vault) Set(ctx context.Context, name holdfast.SecretName, value []byte) (holdfast.Secret, error) {
	switch {
	case len(value) == 0:
		return holdfast.Secret{}, holdfast.Errorf(holdfast.KindInvalid, "secret", "the value of the secret %s is empty", name).
			WithHint("holdfast secret rm %s removes the secret", name)
	case len(value) > MaxValue:
		return holdfast.Secret{}, holdfast.Errorf(holdfast.KindTooLarge, "secret", "the value of the secret %s has %d bytes, at most %d are allowed", name, len(value), MaxValue)
	}
	v.writing.Lock()
	defer v.writing.Unlock()
	sealed, err := v.ring.Seal(bound(name), value)
	if err != nil {
		return holdfast.Secret{}, err
	}
	now := v.now().UTC().Truncate(time.Millisecond)
	r := Record{Secret: holdfast.Secret{Name: name, KeyID: v.ring.KeyID(), CreatedAt: now, UpdatedAt: now}, Sealed: sealed}
	if err := v.store.PutSecret(ctx, r); err != nil {
		return holdfast.Secret{}, err
	}
	kept, err := v.store.Secret(ctx, name)
	return kept.Secret, err
}

// List returns the secrets without their values, sorted by name.
func (v *Vault) List(ctx context.Context) ([]holdfast.Secret, error) {
	list, err := v.store.Secrets(ctx)
	out := make([]holdfast.Secret, len(list))
	for i, r := range list {
		out[i] = r.Secret
	}
	return out, err
}

// Remove removes a secret.
func (v *Vault) Remove(ctx context.Context, name holdfast.SecretName) error {
	v.writing.Lock()
	defer v.writing.Unlock()
	return v.store.RemoveSecret(ctx, name)
}

// Value returns the value of a secret, for use within the server; not_found for an unknown name.
func (v *Vault) Value(ctx context.Context, name holdfast.SecretName) ([]byte, error) {
	r, err := v.store.Secret(ctx, name)
	if err != nil {
		return nil, err
	}
	return open(v.ring, name, r.Sealed)
}
