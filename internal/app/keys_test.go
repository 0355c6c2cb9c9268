package app

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/keys"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
)

// TestListenBeyondLoopbackNeedsAKey, one that is not revoked.
//
// WS-N15.
func TestListenBeyondLoopbackNeedsAKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	k, secret, err := CreateKey(t.Context(), dir, holdfast.CreateKey{Name: "first"})
	if err != nil || !strings.HasPrefix(secret, "hfk_") {
		t.Fatal(k, err)
	}
	store, err := openStore(t.Context(), dir, slog.New(slog.DiscardHandler), sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	opened := func(listen string) *keys.Registry {
		t.Helper()
		r, err := openKeys(t.Context(), store.Keys, slog.New(slog.DiscardHandler), listen)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	registry := opened("127.0.0.1:4100")
	beyond := []string{"0.0.0.0:4100", ":4100", "[::]:0", "192.0.2.1:80", "example.com:80", "127.0.0.1.example.com:80"}
	for _, addr := range beyond {
		if err := checkListen(addr, dir, registry); err != nil {
			t.Errorf("%s with a key: %v", addr, err)
		}
		// What is needed to start is needed to go on.
		if _, err := opened(addr).Revoke(t.Context(), k.ID); !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(holdfast.HintOf(err), "key create") {
			t.Errorf("%s: the last key was revoked: %v", addr, err)
		}
	}
	if _, err := registry.Revoke(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	for _, addr := range beyond {
		if err := checkListen(addr, dir, registry); !holdfast.IsKind(err, holdfast.KindDenied) || !strings.Contains(holdfast.HintOf(err), "HOLDFAST_HOME="+dir+" holdfast key create --offline") {
			t.Errorf("%s without a key: %v", addr, err)
		}
	}
	for _, addr := range []string{"127.0.0.1:0", "localhost:4100", "[::1]:4100", "127.9.9.9:1"} {
		if err := checkListen(addr, dir, registry); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
}
