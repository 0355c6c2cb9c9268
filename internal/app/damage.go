package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
)

// checkDatabase refuses a data directory whose database is gone while what belongs to
// it is there: an empty one in its place would forget every session.
func checkDatabase(data string) error {
	db := filepath.Join(data, "holdfast.db")
	if info, err := os.Stat(db); err == nil && info.Size() > 0 {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil // the store says why
	}
	var left []string
	if entries, err := os.ReadDir(filepath.Join(data, "sessions")); err == nil && len(entries) > 0 {
		left = append(left, filepath.Join(data, "sessions"))
	}
	if info, err := os.Stat(db + "-wal"); err == nil && info.Size() > 0 {
		left = append(left, db+"-wal")
	}
	if len(left) == 0 {
		return nil
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "serve", "the database %s is missing or empty, and %s of it is there", db, left[0]).
		WithHint("put holdfast.db back from a backup; to begin with a new one, which knows none of these sessions: mv %s %s.lost", left[0], left[0])
}

// ownKey is a key of the data directory and what is lost without it.
type ownKey struct {
	name, lost string
	has        int64
}

func (k ownKey) missing(data string) error {
	path := filepath.Join(data, k.name)
	if _, err := os.Lstat(path); k.has == 0 || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "serve", "%s is missing: %d %s", path, k.has, k.lost).
		WithHint("put it back from a backup; to give them up and go on with a new key: (umask 077; openssl rand -hex 32 > %s)", path)
}

// checkKeys refuses to make a new key in the place of one that is gone while there is
// something that only the old one opens.
func checkKeys(ctx context.Context, data string, environ []string, store *sqlite.Store) error {
	environments, secrets, heads, err := store.Sealed(ctx)
	if err != nil {
		return err
	}
	if variableOf(environ, rootKeyVariable) != "" {
		secrets = 0 // its key comes from there
	}
	for _, k := range []ownKey{
		{"secret.key", "session environments are sealed with it", environments},
		{"secrets.key", "secrets are sealed with it", secrets},
		{"audit.key", "heads of the audit chain are signed with it", heads},
	} {
		if err := k.missing(data); err != nil {
			return err
		}
	}
	return nil
}

// Verification is what `holdfast doctor --verify` found.
type Verification struct {
	OK     bool    `json:"ok"`
	Data   string  `json:"data"`
	Checks []Check `json:"checks"`
}

// Verify checks all that a data directory holds, with or without a running server. It
// changes nothing.
func Verify(ctx context.Context, cfg config.Config) (Verification, error) {
	const fix = "put the data directory back from a backup"
	v := Verification{Data: cfg.Data}
	add := func(c Check) { v.Checks = append(v.Checks, c) }
	if err := checkDatabase(cfg.Data); err != nil {
		add(bad("database", holdfast.HintOf(err), "%v", err))
		return v, nil
	}
	db := filepath.Join(cfg.Data, "holdfast.db")
	found, err := sqlite.Verify(ctx, db)
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		return v, holdfast.Errorf(holdfast.KindNotFound, "doctor", "there is no database in %s", cfg.Data).
			WithHint("holdfast doctor --verify --data DIR")
	}
	if err != nil {
		return v, err
	}
	for _, p := range found.Problems {
		add(bad("database", fix, "%s", p))
	}
	if len(found.Problems) == 0 {
		detail := fmt.Sprintf("%d events of %d sessions are what was written", found.Events, found.Sessions)
		if found.Unsummed > 0 {
			detail += fmt.Sprintf("; %d of them are from before there were checksums", found.Unsummed)
		}
		add(good("database", "%s", detail))
	}
	if c, ok := checkAudit(ctx, cfg.Data); ok {
		add(c)
	}
	for _, name := range []string{"token", "secret.key", "audit.key"} {
		info, err := os.Lstat(filepath.Join(cfg.Data, name))
		switch {
		case err != nil:
			add(bad(name, fix, "%v", err))
		case info.Size() == 0 || !info.Mode().IsRegular():
			add(bad(name, fix, "%s holds no key", filepath.Join(cfg.Data, name)))
		default:
			add(good(name, "is there"))
		}
	}
	v.OK = true
	for _, c := range v.Checks {
		v.OK = v.OK && c.OK
	}
	return v, nil
}
