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

// beforeMark is the part of the name of a copy made before a migration that is between the name of the database and
// the number of the schema.
const beforeMark = ".schema-"

// beforeFor is how long a copy made before a migration is kept.
const beforeFor = 7 * 24 * time.Hour

// keepBefore saves a copy of a database that has an older schema, in the same directory, before it is migrated. It
// replaces a copy with the same schema, which is from before an earlier migration: somebody may have put an older
// database in place and worked with it since. Each step of a migration is one transaction, so what an interrupted
// migration leaves is a whole database of some schema.
func keepBefore(ctx context.Context, from *sql.DB, path string, schema int64) error {
	to := fmt.Sprintf("%s%s%d", path, beforeMark, schema)
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

// DropCopies removes all copies of the database from before migrations, because what is deleted from the database may
// still be in them. When DropCopies returns, the removal is on the disk.
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
