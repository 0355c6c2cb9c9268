package db

import (
	"context"
	"database/sql"
	"strings"
)

// Setup is a database before it accepts writes. A store declares what it needs of it: its
// statements, its part in each transaction, its goroutines. After the first error all calls do
// nothing; Open returns that error.
type Setup struct {
	db   *DB
	ctx  context.Context
	err  error
	runs []func(context.Context)
}

// DB returns the database. Its Do must not be called before Open returns.
func (s *Setup) DB() *DB { return s.db }

// Write prepares a statement for use within transactions of the writer.
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

// Read prepares a statement for the pool that only reads.
func (s *Setup) Read(dst **sql.Stmt, query string) {
	if s.err == nil {
		*dst, s.err = s.db.readDB.PrepareContext(s.ctx, query)
	}
}

// Err returns the first error of Write and Read. A store asks for it before it uses a
// statement.
func (s *Setup) Err() error { return s.err }

// Join has a store take part in each transaction. Members are called in the order in which
// they joined.
func (s *Setup) Join(m Member) { s.db.writer.members = append(s.db.writer.members, m) }

// Clean has the janitor remove deleted data.
func (s *Setup) Clean(c Cleaner) { s.db.janitor.cleaner = c }

// Recovered has the janitor call f each time a full disk has space again.
func (s *Setup) Recovered(f func(context.Context)) { s.db.janitor.recovered = f }

// Run starts a goroutine once the database accepts writes. It has to end when DB.Stopping
// says so.
func (s *Setup) Run(f func(context.Context)) { s.runs = append(s.runs, f) }

// Values returns n groups of placeholders for an INSERT of n rows.
func Values(group string, n int) string { return strings.Repeat(group+`,`, n-1) + group }
