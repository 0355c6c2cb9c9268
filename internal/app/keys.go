package app

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/guard"
	"github.com/holdfast-run/holdfast/internal/keys"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
)

// CreateKey makes a key in a data directory while no server runs on it.
func CreateKey(ctx context.Context, data string, req holdfast.CreateKey) (k holdfast.Key, secret string, err error) {
	if _, err := makeDirs(data, slog.New(slog.DiscardHandler)); err != nil {
		return k, "", err
	}
	store, err := openStore(ctx, data, slog.New(slog.DiscardHandler), sqlite.Config{})
	if err != nil {
		return k, "", err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	registry, err := openKeys(ctx, store.Keys, slog.New(slog.DiscardHandler), "")
	if err != nil {
		return k, "", err
	}
	return registry.Create(ctx, req)
}

func openStore(ctx context.Context, data string, log *slog.Logger, cfg sqlite.Config) (*sqlite.Store, error) {
	cfg.Path, cfg.Clock = filepath.Join(data, "holdfast.db"), time.Now
	cfg.Warn = func(err error) { warn(log, "store", err) }
	cfg.Space = func(sp sqlite.Space) { logSpace(log, sp) }
	return sqlite.Open(ctx, cfg)
}

// warn logs an error with its hint.
func warn(log *slog.Logger, what string, err error) {
	if hint := holdfast.HintOf(err); hint != "" {
		log = log.With("hint", hint)
	}
	log.Warn(what, "error", err)
}

// logSpace logs when a full disk makes the store refuse writes, and when that is over.
func logSpace(log *slog.Logger, sp sqlite.Space) {
	switch {
	case sp.Err == nil:
		log.Info("the disk has space again: all writes are accepted", "path", sp.Path, "free_bytes", sp.Free)
	case sp.Full:
		log.Error("the disk is full", "path", sp.Path, "free_bytes", sp.Free, "refused", "all writes", "error", sp.Err, "hint", holdfast.HintOf(sp.Err))
	default:
		log.Error("the disk is full", "path", sp.Path, "free_bytes", sp.Free, "refused", "new sessions and messages", "error", sp.Err, "hint", holdfast.HintOf(sp.Err))
	}
}

// openKeys opens the registry of API keys. listen is the address of the server, or empty if none runs.
func openKeys(ctx context.Context, store keys.Store, log *slog.Logger, listen string) (*keys.Registry, error) {
	return keys.Open(ctx, keys.Config{
		Store: store, Now: time.Now, Rand: rand.Reader, Log: log, KeepLast: listen != "" && !guard.Loopback(listen),
	})
}

// checkListen refuses an address that other machines can reach while the owner token is the only
// credential: the token permits everything, cannot be revoked for one holder, and belongs to
// this machine.
func checkListen(listen, data string, k *keys.Registry) error {
	if guard.Loopback(listen) || k.Active() > 0 {
		return nil
	}
	return holdfast.Errorf(holdfast.KindDenied, "serve", "other machines can reach the listen address %s, but no API key exists for them", holdfast.Quote(listen)).
		WithHint("HOLDFAST_HOME=%s holdfast key create --offline makes a key; or listen on 127.0.0.1", data)
}
