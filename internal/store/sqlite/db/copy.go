package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"modernc.org/sqlite"

	"github.com/holdfast-run/holdfast"
)

// Copy writes the database, as it is at one moment, to a new file, while it is in use. Deleted data are not
// in the copy.
func (d *DB) Copy(ctx context.Context, path string) (err error) {
	info, err := os.Stat(d.cfg.Path)
	if err != nil {
		return OpenError(d.cfg.Path, err)
	}
	// Leave as much disk space free as the write-ahead log may need.
	if free, _ := diskSpace(path); free >= 0 && free < info.Size()+walMax*d.room.logBytes {
		return holdfast.Errorf(holdfast.KindUnavailable, "store.copy", "a copy of the database needs %d MiB, but the disk has %d MiB free",
			(info.Size()+walMax*d.room.logBytes)>>20+1, free>>20).WithHint("free space on the disk of %s", filepath.Dir(path))
	}
	// VACUUM counts as a write, which read-only connections refuse.
	c, err := sqlite.NewConnector(d.cfg.dsn("cache_size(-1000)"))
	if err != nil {
		return OpenError(d.cfg.Path, err)
	}
	from := sql.OpenDB(c)
	defer func() { err = errors.Join(err, from.Close()) }()
	if err := copyTo(ctx, from, path); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "store.copy", "%w", err).
			WithHint("free disk space for a copy of the database, or see what is damaged: holdfast doctor --verify")
	}
	return nil
}

// copyTo writes a database to a new file, which is not synced.
func copyTo(ctx context.Context, from *sql.DB, path string) error {
	if _, err := from.ExecContext(ctx, `VACUUM INTO ?`, path); err != nil {
		return fmt.Errorf("the database cannot be copied to %s: %w", holdfast.Quote(path), err)
	}
	return nil
}
