package db

import (
	"context"
	"database/sql"
)

// Do has the writer carry out an Op and returns once the Op is on disk or refused. name is the
// operation in errors. If ctx ends before the writer starts on the Op, Do withdraws it; after
// that Do waits for the result even if ctx ends.
func (d *DB) Do(ctx context.Context, name string, o *Op) error {
	if e := d.room.refuses(o.Admits); e != nil {
		return e
	}
	return d.writer.do(ctx, name, o)
}

// Reads returns the pool of read-only connections.
func (d *DB) Reads() *sql.DB { return d.readDB }

// Epoch returns the fencing token of this server. Each opening of the database raises it by one.
func (d *DB) Epoch() uint64 { return d.writer.epoch }

// Healthy returns nil while all writes are accepted, otherwise why some are not:
// unavailable while the disk is full and after a failed write or fsync, conflict after
// another server took over.
func (d *DB) Healthy() error {
	if e := d.room.refuses(true); e != nil {
		return e
	}
	return nil
}

// Tidy asks the janitor goroutine to remove the rows and pages of deleted data soon.
func (d *DB) Tidy() { poke(d.room.due) }

// Stopping returns a channel that is closed when the database begins to close.
func (d *DB) Stopping() <-chan struct{} { return d.janitor.stop }

// Stops reports whether the database is being closed.
func (d *DB) Stops() bool { return d.janitor.stopping() }

// Damage records a damaged place, and warns of it the first time.
func (d *DB) Damage(place string) { d.damage.add(place) }

// Damaged lists the damaged places found since the database was opened, at most MaxDamage.
func (d *DB) Damaged() []string { return d.damage.list() }
