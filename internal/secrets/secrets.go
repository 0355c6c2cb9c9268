// Package secrets is the credential store: named values, such as the keys of model
// providers, encrypted at rest.
//
// The app builds one; the API sets and lists, the broker and the providers read. It
// imports the vocabulary; the store and the keyring are interfaces to it. Invariant
// (I-22): a value comes in, and goes to who uses it within the server; nothing else
// tells it.
package secrets

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Record is a secret as it is stored.
type Record struct {
	holdfast.Secret
	Sealed []byte
}

// Rewrapped is a record whose envelope was wrapped anew.
type Rewrapped struct {
	Record
	// Was is what has to be there.
	Was []byte
}

// Store keeps records. Each method is one transaction.
type Store interface {
	// Secrets are all records by name.
	Secrets(ctx context.Context) ([]Record, error)
	// Secret is one; not_found for an unknown one.
	Secret(ctx context.Context, name holdfast.SecretName) (Record, error)
	// PutSecret makes or replaces one; CreatedAt of one that is there stays.
	PutSecret(ctx context.Context, r Record) error
	// RemoveSecret is not_found for an unknown one.
	RemoveSecret(ctx context.Context, name holdfast.SecretName) error
	// RewrapSecrets replaces the envelopes of records, all or none: conflict where
	// one is not what it was.
	RewrapSecrets(ctx context.Context, wrapped []Rewrapped) error
}

// Keyring seals values; see seal.Keyring.
type Keyring interface {
	KeyID() string
	Seal(context string, plain []byte) ([]byte, error)
	Open(context string, sealed []byte) ([]byte, error)
	Rewrap(context string, sealed []byte) ([]byte, error)
	Renew() error
	Retire() error
}

// MaxValue bounds a value.
const MaxValue = 64 << 10

// Vault is the credential store. Safe for concurrent use.
type Vault struct {
	store Store
	ring  Keyring
	now   func() time.Time

	// writing is held by what seals: not under a root key that is about to retire.
	writing sync.Mutex
}

// New makes a vault.
func New(store Store, ring Keyring, now func() time.Time) *Vault {
	return &Vault{store: store, ring: ring, now: now}
}

// bound is what a value is sealed for: an envelope of another name does not open.
func bound(name holdfast.SecretName) string { return "the secret " + string(name) }

// Check reports whether a keyring opens the envelope of a secret.
func Check(ring Keyring, name holdfast.SecretName, sealed []byte) error {
	_, err := ring.Open(bound(name), sealed)
	return err
}

// Set makes a secret or gives it another value.
func (v *Vault) Set(ctx context.Context, name holdfast.SecretName, value []byte) (holdfast.Secret, error) {
	switch {
	case len(value) == 0:
		return holdfast.Secret{}, holdfast.Errorf(holdfast.KindInvalid, "secret", "the value of %s is empty", name).
			WithHint("holdfast secret rm %s removes it", name)
	case len(value) > MaxValue:
		return holdfast.Secret{}, holdfast.Errorf(holdfast.KindTooLarge, "secret", "the value of %s has %d bytes, %d allowed", name, len(value), MaxValue)
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

// List shows the secrets by name.
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

// Value is for who uses a secret within the server; not_found for an unknown one.
func (v *Vault) Value(ctx context.Context, name holdfast.SecretName) ([]byte, error) {
	r, err := v.store.Secret(ctx, name)
	if err != nil {
		return nil, err
	}
	return v.ring.Open(bound(name), r.Sealed)
}

// Rotate puts a new root key in use and wraps every secret anew under it; then the
// former ones are forgotten. Killed anywhere it has lost nothing: a root key is on
// disk before anything is sealed under it, and goes when nothing is any more.
func (v *Vault) Rotate(ctx context.Context) ([]holdfast.Secret, error) {
	v.writing.Lock()
	defer v.writing.Unlock()
	list, err := v.store.Secrets(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		// What cannot be opened must not lose its key for good.
		if _, err := v.ring.Open(bound(r.Name), r.Sealed); err != nil {
			return nil, err
		}
	}
	if err := v.ring.Renew(); err != nil {
		return nil, err
	}
	wrapped := make([]Rewrapped, len(list))
	for i, r := range list {
		wrapped[i] = Rewrapped{Record: r, Was: r.Sealed}
		if wrapped[i].Sealed, err = v.ring.Rewrap(bound(r.Name), r.Sealed); err != nil {
			return nil, err
		}
		wrapped[i].KeyID = v.ring.KeyID()
	}
	if err := v.store.RewrapSecrets(ctx, wrapped); err != nil {
		return nil, err
	}
	if err := v.ring.Retire(); err != nil {
		return nil, err
	}
	return v.List(ctx)
}
