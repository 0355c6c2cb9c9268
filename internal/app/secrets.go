package app

import (
	"context"
	"crypto/rand"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/seal"
	"github.com/holdfast-run/holdfast/internal/secrets"
)

// The environment variables with the root keys of the credential store and of session environments: the current one, and,
// until a rotation, former ones separated by commas.
const (
	rootKeyVariable   = "HOLDFAST_SECRET_KEY"
	formerKeyVariable = "HOLDFAST_SECRET_KEY_OLD"
)

func openVault(data string, environ []string, store secrets.Store) (*secrets.Vault, error) {
	ring, err := openRing(data, environ, rand.Reader)
	if err != nil {
		return nil, err
	}
	return secrets.New(store, ring, time.Now), nil
}

// openRing opens the root keys, those of the environment first. If random is nil, it makes no
// new key.
func openRing(data string, environ []string, random io.Reader) (*seal.Keyring, error) {
	var given []string
	if key := variableOf(environ, rootKeyVariable); key != "" {
		given = append(given, key)
		for former := range strings.SplitSeq(variableOf(environ, formerKeyVariable), ",") {
			if former != "" {
				given = append(given, former)
			}
		}
	}
	return seal.OpenKeyring(filepath.Join(data, "secrets.key"), given, random)
}

// secret returns the function that reads providers' keys from the credential store, also after the end of ctx.
func (s *server) secret(ctx context.Context) secretOf {
	ctx = context.WithoutCancel(ctx)
	return func(name holdfast.SecretName) (string, error) {
		value, err := s.vault.Value(ctx, name)
		return string(value), err
	}
}
