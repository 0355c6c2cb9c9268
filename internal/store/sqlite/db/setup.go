package db

import (
	"context"
	"database/sql"
	"strings"
)

// Setup is a database before it accepts writes. Through it each store declares its statements,
// its part in each transaction and its goroutines. After the first error Write and Read do
// nothing more, and Open returns that error.
type Setup struct {
	db   *DB
	ctx  context.Context
	err  error
	runs []func(context.Context)
}

// DB returns the database. Its Do must not be called before Open returns.
func (s *Setup) DB() *DB { return s.db }

// Write prepares query as *dst, for use within transactions of the writer.
func (s *Setup) Write(dst **sql.Stmt, query string) {
	if s.err != nil {
		return
	}
	var st *sql.Stmt
	if st, s.err = s.db.writer.conn.PrepareContext(s.ctx, query); s.err == nil {
		s.db.writer.stmts = append(s.db.writer.stmts, st)
		*dst = st
	}
}

// Read prepares query as *dst, for the pool of read-only connections.
func (s *Setup) Read(dst **sql.Stmt, query string) {
	if s.err == nil {
		*dst, s.err = s.db.readDB.PrepareContext(s.ctx, query)
	}
}

// Err returns the first error of Write and Read. A store must check it before it uses a
// statement.
func (s *Setup) Err() error { return s.err }

// Join makes a store a member of each transaction: the writer calls m's functions, those of
// several members in the order of their Joins.
func (s *Setup) Join(m Member) { s.db.writer.members = append(s.db.writer.members, m) }

// Clean sets the functions by which the janitor removes deleted data.
func (s *Setup) Clean(c Cleaner) { s.db.janitor.cleaner = c }

// Recovered has the janitor call f each time a full disk has space again.
func (s *Setup) Recovered(f func(context.Context)) { s.db.janitor.recovered = f }

// Run makes Open start f in a goroutine once the database accepts writes. f has to return once
// the channel of DB.Stopping is closed.
func (s *Setup) Run(f func(context.Context)) { s.runs = append(s.runs, f) }

// Insert returns the statement that inserts n rows into columns of a table. If one row fails, those before it stay: the
// writer then rolls the whole transaction back, so SQLite need not keep copies of the pages that the statement changes.
func Insert(table, columns string, n int) string {
	row := "(" + strings.Repeat("?,", strings.Count(columns, ",")) + "?)"
	return "INSERT OR FAIL INTO " + table + " (" + columns + ") VALUES " + strings.Repeat(row+",", n-1) + row
}
