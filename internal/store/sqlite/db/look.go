package db

import (
	"database/sql"
	"time"

	"modernc.org/sqlite"
)

// Look opens a database for reading only, also while a server uses it, and leaves its files
// as they are, the log of a server that was killed included. The caller closes it.
//
// Without a log no server has the database open. Then it is read as a file that nobody
// changes: SQLite would otherwise make an empty log, and the next start could not see that
// the log is gone.
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
