package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

// beforeMark stands, in the name of a copy made before a migration, between the database's name and the rest.
const beforeMark = ".schema-"

// beforeFor is how long a copy made before a migration is kept.
const beforeFor = 7 * 24 * time.Hour

// keepBefore saves a copy of a database that has an older schema, in the same directory, before it is migrated. If
// a copy with the same schema exists, it stays: it is from before a migration that was interrupted.
func keepBefore(ctx context.Context, from *sql.DB, path string, schema int64) error {
	to := fmt.Sprintf("%s%s%d", path, beforeMark, schema)
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	temp := to + ".tmp"
	if err := removeCopy(temp); err != nil {
		return err
	}
	if err := copyTo(ctx, from, temp); err != nil {
		return errors.Join(noCopy(path, err), removeCopy(temp))
	}
	f, err := os.OpenFile(temp, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := durable.Write(f, func(f *os.File) error { return f.Chmod(0o600) }); err != nil {
		return err
	}
	if err := os.Rename(temp, to); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(to))
}

// removeCopy removes a copy that is not complete.
func removeCopy(temp string) error {
	for _, name := range []string{temp, temp + "-journal"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// noCopy returns the error of a database that is not migrated, because it cannot be copied.
func noCopy(path string, err error) error {
	size := int64(0)
	if info, serr := os.Stat(path); serr == nil {
		size = info.Size()
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "store.open", "the database %s is of an older release and was not converted, because it could not be copied first: %w", path, err).
		WithHint("free %d MiB on the disk of the database, which this command shows: df %s", size>>20+1, filepath.Dir(path))
}

// DropCopies removes the copies from before migrations, durably. What is deleted from the database may be in them.
func (d *DB) DropCopies() error { return dropCopies(d.cfg.Path, time.Time{}) }

// dropCopies removes the copies of a database from before migrations that were made before a moment; the zero time
// removes all.
func dropCopies(path string, before time.Time) error {
	dir, base := filepath.Split(path)
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	removed := false
	for _, e := range list {
		if !strings.HasPrefix(e.Name(), base+beforeMark) {
			continue
		}
		info, err := e.Info()
		if err != nil || !before.IsZero() && info.ModTime().After(before) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
		removed = true
	}
	if !removed {
		return nil
	}
	return durable.SyncDir(dir)
}
