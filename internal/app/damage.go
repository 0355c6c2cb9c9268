package app

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/auditlog"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
)

// checkDatabase refuses a data directory whose database is missing or empty while files that
// belong to it exist: a new database in its place would forget every session.
func checkDatabase(data string) error {
	db := filepath.Join(data, "holdfast.db")
	if info, err := os.Stat(db); err == nil && info.Size() > 0 {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil // opening the store reports the error
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
	return holdfast.Errorf(holdfast.KindUnavailable, "serve", "the database %s is missing or empty, but %s, which belongs to it, exists", db, left[0]).
		WithHint("put holdfast.db back from a backup; to begin with a new database, which knows none of the sessions: mv %s %s.lost", left[0], left[0])
}

// ownKey is a key of the data directory, with the data that cannot be used without it.
type ownKey struct {
	name, lost string
	has        int64
	// replace is the command that makes a new key and gives up the data that only the missing key opens.
	replace string
}

func (k ownKey) missing(data string) error {
	path := filepath.Join(data, k.name)
	if _, err := os.Lstat(path); k.has == 0 || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "serve", "the key file %s is missing; what needs it: %d %s", path, k.has, k.lost).
		WithHint("put the key file back from a backup; to give up what needs it and go on with a new key: %s", k.replace)
}

// checkKeys refuses to replace a missing key by a new one while data exists that only
// the old one opens.
func checkKeys(ctx context.Context, data string, environ []string, store *sqlite.Store) error {
	sealed, heads, err := store.Sealed(ctx)
	if err != nil {
		return err
	}
	packs, err := store.Checkpoints.AllPacks(ctx)
	if err != nil {
		return err
	}
	if variableOf(environ, rootKeyVariable) != "" {
		sealed = 0 // the root key is in the environment, so it is not missing
	}
	random := func(name string) string {
		return "(umask 077; openssl rand -hex 32 > " + filepath.Join(data, name) + ")"
	}
	for _, k := range []ownKey{
		{"secrets.key", "secrets and session environments are sealed with it", sealed, random("secrets.key")},
		{auditlog.KeyFile, "heads of the audit log are signed with it", heads, "holdfast audit new-key --data " + data},
		{snapshotKey, "packs of snapshots can be read only with it", int64(len(packs)), random(snapshotKey)},
	} {
		if err := k.missing(data); err != nil {
			return err
		}
	}
	return nil
}
