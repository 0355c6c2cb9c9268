// Package keys is the registry of API keys: it makes, checks, lists and revokes
// them.
//
// The app opens the Registry; httpapi uses it through an interface of its own. It
// imports the vocabulary. Invariant (I-22): a secret leaves Create once and is kept
// nowhere, only its hash is; a key that Revoke returned opens nothing any more.
package keys

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Store keeps the keys. Each method is one transaction; unknown ids are
// not_found.
type Store interface {
	// PutKey adds a key; conflict when its id is taken.
	PutKey(ctx context.Context, r Record) error
	// Keys lists every key, oldest first, revoked ones too.
	Keys(ctx context.Context) ([]Record, error)
	// RevokeKey ends a key. The time of the first revocation stays.
	RevokeKey(ctx context.Context, id holdfast.KeyID, at time.Time) error
	// TouchKey records a use; an earlier one than is known changes nothing.
	TouchKey(ctx context.Context, id holdfast.KeyID, at time.Time) error
}

// Record is a key as it is stored.
type Record struct {
	holdfast.Key
	// Hash is the SHA-256 of the whole secret, which is random: a slow hash would
	// add nothing but work for each request.
	Hash []byte
}
