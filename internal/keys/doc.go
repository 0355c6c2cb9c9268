// Package keys is the registry of API keys: it creates, checks, lists and revokes
// them.
//
// The app opens the Registry; httpapi uses it through an interface of its own. It
// imports the vocabulary. Invariant (I-22): the secret of a key is returned by Create and never
// stored, only its hash is; a revoked key is refused as soon as Revoke has returned.
package keys

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Store stores the records of API keys. Each method is one transaction; for an unknown id the error
// is not_found.
type Store interface {
	// PutKey adds a key; conflict if a key with its id exists.
	PutKey(ctx context.Context, r Record) error
	// Keys lists all keys including revoked ones, oldest first.
	Keys(ctx context.Context) ([]Record, error)
	// RevokeKey marks a key as revoked. For a revoked key the time of the first revocation stays.
	RevokeKey(ctx context.Context, id holdfast.KeyID, at time.Time) error
	// TouchKey records when a key was used. A time before the recorded one changes nothing.
	TouchKey(ctx context.Context, id holdfast.KeyID, at time.Time) error
}

// Record is an API key as it is stored, with the hash of its secret.
type Record struct {
	holdfast.Key
	// Hash is the SHA-256 hash of the whole secret. The secret is random, so a slow hash would
	// only cost time in each request.
	Hash []byte
}
