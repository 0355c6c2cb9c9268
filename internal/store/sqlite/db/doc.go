// Package db owns the database file of a server: the lock of its directory, its
// connections, its schema version and every transaction that writes to it. It knows one
// table, server; all others belong to the stores over it, which declare their statements
// in a Setup and hand their changes to DB.Do.
//
// Only internal/store/sqlite and its packages may import it.
//
// Invariants (I-1, I-6, I-20, I-21): one goroutine writes, through one connection, several
// changes in one transaction (group commit); a change is answered after its transaction is
// on disk; a change that is refused has written nothing. All settings of a connection are
// in its DSN. The file has one server: the lock of the directory keeps others out, and a
// transaction that finds that another connection has written compares the epoch, which
// each server raises when it opens the file. A server that lost its lock writes nothing.
package db
