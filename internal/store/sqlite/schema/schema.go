// Package schema has the tables of a SQLite database, as the steps from each schema that a
// release had to the newest, and the checksum of a row of events.
//
// The store imports it; it imports the vocabulary. Invariant: a step is never changed once a release has it, and a
// database of any release before is brought up to date with nothing lost, or refused by name.
package schema

import (
	"database/sql"
	"embed"
	"io/fs"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var files embed.FS

// Of returns the steps for a database.
func Of(db *sql.DB) (*goose.Provider, error) {
	steps, err := fs.Sub(files, "migrations")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectSQLite3, db, steps, goose.WithDisableGlobalRegistry(true),
		goose.WithGoMigrations(goose.NewGoMigration(18, &goose.GoFunc{RunTx: partsOfMessages}, &goose.GoFunc{RunTx: textsOfMessages})))
}
