package secrets

import (
	"context"
	"crypto/rand"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/seal"
)

// empty is a store without values.
type empty struct{ Store }

func (empty) Secrets(context.Context) ([]Record, error) { return nil, nil }

func (empty) Environments(context.Context, Environment) ([]Environment, error) { return nil, nil }

func (empty) RewrapSecrets(context.Context, []Rewrapped) error { return nil }

// The root key stays while a session is stored.
func TestHoldKeepsTheRootKey(t *testing.T) {
	ring, err := seal.OpenKeyring(filepath.Join(t.TempDir(), "keys"), nil, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	v, id := New(empty{}, ring, time.Now), ring.KeyID()
	release := v.Hold()
	done := make(chan error, 1)
	go func() {
		_, err := v.Rotate(t.Context())
		done <- err
	}()
	// A lock for reading cannot be had while the rotation waits for its own.
	for v.sealing.TryRLock() {
		v.sealing.RUnlock()
		select {
		case err := <-done:
			t.Fatalf("the rotation did not wait: %v", err)
		default:
			runtime.Gosched()
		}
	}
	if ring.KeyID() != id {
		t.Error("the root key changed while it was held")
	}
	release()
	if err := <-done; err != nil || ring.KeyID() == id {
		t.Errorf("after the release: %v", err)
	}
}
