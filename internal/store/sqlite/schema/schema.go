// Package schema defines the tables of the SQLite database as migrations, which lead from the
// schema of any earlier release to the newest, and the checksum of a row of events.
//
// The SQLite store imports it. Invariant: a migration never changes once it is released, and the
// database of any earlier release is either migrated without loss or refused with a reason.
package schema

import (
	"database/sql"
	"embed"
	"io/fs"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var files embed.FS

// Of returns the provider that applies the migrations to db.
func Of(db *sql.DB) (*goose.Provider, error) {
	steps, err := fs.Sub(files, "migrations")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectSQLite3, db, steps, goose.WithDisableGlobalRegistry(true),
		goose.WithGoMigrations(
			goose.NewGoMigration(18, &goose.GoFunc{RunTx: partsOfMessages}, &goose.GoFunc{RunTx: textsOfMessages}),
			goose.NewGoMigration(19, &goose.GoFunc{RunTx: environmentsInEnvelopes}, &goose.GoFunc{RunTx: nothing}),
		))
}
