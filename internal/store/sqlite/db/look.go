package db

import (
	"database/sql"
	"time"

	"modernc.org/sqlite"
)

// Look opens a database read-only, also while a server uses it. It leaves all its files as they
// are, including the write-ahead log of a server that was killed. The caller closes the result.
//
// Without a write-ahead log no server has the database open. Then Look opens it as an immutable
// file: SQLite would otherwise make an empty log, and the next start could not notice that the
// log is missing.
func Look(path string) (*sql.DB, error) {
	dsn := Config{Path: path, busy: time.Second}.dsn("query_only(1)") + "&mode=ro"
	if !HasLog(path) {
		dsn += "&immutable=1"
	}
	c, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, OpenError(path, err)
	}
	return sql.OpenDB(c), nil
}
